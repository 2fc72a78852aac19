"""Faults on demand: each is the error that hardware gives, and leaves usable what hardware would."""

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch

from torch_musa_sim import _C

faults = torch.musa.faults
DEAD = torch.AcceleratorError


@pytest.fixture(autouse=True)
def _no_fault_outlives_its_test():
    yield
    faults.clear()
    for card in range(torch.musa.device_count()):
        faults.reset(card)
    assert _C._watch_bits() & 1 == 0  # strict mode watches, too


def ones(card: int = 0) -> torch.Tensor:
    return torch.ones(4, 4, device=f"musa:{card}")


def test_the_nth_allocation_is_out_of_memory_and_nothing_else_is_lost():
    kept = ones()
    faults.fail_allocation(3)
    first, second = torch.empty(4, device="musa"), torch.empty(4, device="musa")
    with pytest.raises(torch.OutOfMemoryError, match=r"MUSA out of memory. Tried to allocate 16 bytes.*planned fault"):
        torch.empty(4, device="musa")
    third = torch.empty(4, device="musa")
    assert len({t.data_ptr() for t in (first, second, third)}) == 3
    assert (kept + 1).sum().item() == 32
    assert faults.health(0) == "ok"


def test_an_operator_whose_result_finds_no_memory_leaks_none():
    a = torch.ones(300, 300, device="musa")
    a @ a
    torch.musa.synchronize()
    gc.collect()
    before = torch.musa.memory_allocated()
    faults.fail_allocation()
    with pytest.raises(torch.OutOfMemoryError):
        a @ a
    assert torch.musa.memory_allocated() == before
    assert (a @ a)[0, 0].item() == 300


def test_a_large_allocation_can_fail_too_and_a_retry_helps():
    faults.fail_allocation(device=0)
    with pytest.raises(torch.OutOfMemoryError, match=r"64\.00 MiB"):
        torch.empty(16 << 20, device="musa")
    torch.empty(16 << 20, device="musa")


def test_a_failed_launch_names_operator_stream_and_card_and_the_card_stays_dead():
    a, other = ones(1), ones(2)
    faults.fail_launch(2, device=1)
    a + a
    with pytest.raises(
        DEAD, match=r"unspecified launch failure.*aten::mul\S* failed on stream 0 of card musa:1"
    ) as info:
        a * a
    assert info.value.error_code == 719
    with pytest.raises(DEAD, match=r"aten::sub\S* needs card musa:1, which is dead.*torch\.musa\.faults\.reset\(1\)"):
        a - a
    with pytest.raises(DEAD, match="musaDeviceSynchronize needs card musa:1"):
        torch.musa.synchronize(1)
    with pytest.raises(DEAD):
        a.cpu()
    with pytest.raises(DEAD):
        a.item() if a.numel() == 1 else a[0, 0].item()
    with pytest.raises(DEAD):
        torch.ones(2).to("musa:1")
    assert faults.health(1) == "musaErrorLaunchFailure"
    assert (other + 1).sum().item() == 32
    assert a.view(16).shape == (16,)  # metadata needs no card


def test_a_dead_card_lives_again_after_reset():
    a = ones()
    faults.fail_launch()
    with pytest.raises(DEAD):
        a + 1
    faults.reset(0)
    assert faults.health(0) == "ok"
    assert (a + 1).sum().item() == 32


def test_a_failed_copy_kills_the_card():
    a = ones()
    faults.fail_copy(2)
    assert a.cpu().sum() == 16
    with pytest.raises(DEAD, match=r"unspecified launch failure.*aten::_copy_from failed on stream 0 of card musa:0"):
        a.cpu()
    assert faults.health() == "musaErrorLaunchFailure"


def test_kernels_and_allocations_dont_count_as_copies():
    faults.fail_copy()
    a = ones() + 1
    torch.musa.synchronize()
    assert [fault.kind for fault in faults.planned()] == ["copy"]
    with pytest.raises(DEAD):
        a.cpu()


def test_a_copy_between_cards_needs_both():
    a, b = ones(0), ones(1)
    faults.lose_card(1)
    with pytest.raises(DEAD, match="card musa:1 is lost, it has fallen off the bus") as info:
        a.copy_(b)
    assert info.value.error_code == 46
    with pytest.raises(DEAD):
        b.copy_(a)
    assert (a + 1).sum().item() == 32


def test_a_card_is_lost_after_virtual_time():
    a = ones()
    torch.musa.synchronize()
    faults.lose_card(0, after_ms=5)
    a + a
    torch.musa.synchronize()
    torch.musa._sleep(9_000_000)  # 6 ms
    with pytest.raises(DEAD, match="lost"):
        torch.musa.synchronize()


def test_a_memory_error_is_met_by_whatever_runs_next():
    a = ones()
    faults.memory_error(0)
    with pytest.raises(DEAD, match=r"uncorrectable ECC error.*aten::add\S* met an uncorrectable memory error") as info:
        a + a
    assert info.value.error_code == 214
    assert (ones(1) + 1).sum().item() == 32


def test_a_memory_error_in_a_tensor_is_found_where_that_is_touched():
    good, bad = ones(), ones()
    faults.memory_error(tensor=bad)
    assert (good + 1).sum().item() == 32
    assert bad.t().shape == (4, 4)
    with pytest.raises(DEAD, match=rf"aten::mul\S* touched 0x{bad.data_ptr():x} on card musa:0"):
        good * bad
    with pytest.raises(DEAD):
        good + 1


@pytest.mark.parametrize("read", [torch.Tensor.cpu, lambda t: t.sum().item(), torch.Tensor.tolist])
def test_a_read_of_bad_memory_never_returns_a_value(read):
    bad = ones()
    faults.memory_error(tensor=bad)
    with pytest.raises(DEAD, match="uncorrectable"):
        read(bad)


def test_writing_with_a_kernel_of_our_own_reports_with_the_next_call():
    bad = ones()
    faults.memory_error(tensor=bad)
    bad.normal_()
    with pytest.raises(DEAD, match=r"aten::normal_\S* touched"):
        torch.musa.synchronize()


def test_backward_reports_to_its_caller_and_frees_the_graph():
    weight = torch.ones(8, 8, device="musa", requires_grad=True)
    (weight @ weight).sum().backward()
    weight.grad = None
    torch.musa.synchronize()
    gc.collect()
    before = torch.musa.memory_allocated()
    loss = (weight @ weight).sum()
    faults.fail_launch(2)
    with pytest.raises(DEAD, match="unspecified launch failure"):
        loss.backward()
    del loss
    faults.reset()
    weight.grad = None
    gc.collect()
    assert torch.musa.memory_allocated() == before
    (weight @ weight).sum().backward()
    assert weight.grad[0, 0].item() == 16


def test_every_thread_hears_of_a_dead_card():
    a = ones()
    faults.lose_card(0)
    heard = []

    def work():
        try:
            a + a
        except DEAD as error:
            heard.append(error.error_code)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [46] * 4


def test_the_pinning_thread_of_a_data_loader_reports_to_the_loop():
    loader = torch.utils.data.DataLoader(
        torch.arange(1000.0).split(100), batch_size=None, pin_memory=True, num_workers=1
    )
    ones() + 1
    faults.lose_card(0)
    with pytest.raises(Exception, match=r"pin memory thread[\s\S]*fallen off the bus"):
        list(loader)


def test_a_failed_segment_is_bridged_by_the_caching_allocator():
    torch.musa.empty_cache()
    retries = torch.musa.memory_stats()["num_alloc_retries"]
    _C._plan_fault(1, 0, 1, 0, 0, 0)
    torch.empty(64 << 20, device="musa")
    assert torch.musa.memory_stats()["num_alloc_retries"] == retries + 1
    torch.musa.empty_cache()


@pytest.mark.parametrize("plan", [faults.lose_card, faults.memory_error])
def test_fresh_memory_of_a_dead_card_is_refused_with_its_error_and_isnt_out_of_memory(plan):
    torch.musa.empty_cache()
    ooms = torch.musa.memory_stats()["num_ooms"]
    plan(0)
    with pytest.raises(DEAD, match=r"in musaMalloc.*musa:0, which is dead"):
        torch.empty(64 << 20, device="musa")
    assert torch.musa.memory_stats()["num_ooms"] == ooms
    faults.reset(0)
    torch.empty(64 << 20, device="musa")
    torch.musa.empty_cache()


def test_a_kernel_of_a_graph_can_fail_and_captured_ones_dont_count():
    x = ones()
    graph = torch.musa.MUSAGraph()
    faults.fail_launch(3)
    with torch.musa.graph(graph):
        y = torch.erfinv(x.add_(1).tril())
    with pytest.raises(DEAD, match="aten::erfinv failed on stream 0 of card musa:0"):
        graph.replay()
    faults.reset(0)
    graph.replay()
    assert x[0, 0].item() == 3
    faults.memory_error(tensor=x)
    with pytest.raises(DEAD, match="uncorrectable"):
        graph.replay()
    with pytest.raises(DEAD):
        graph.replay()
    del y


def test_a_number_that_the_host_asks_for_is_a_copy():
    x = ones()
    faults.fail_copy()
    with pytest.raises(DEAD, match=r"in musaMemcpyAsync.*_local_scalar_dense"):
        x[0, 0].item()


def test_what_is_planned_can_be_seen_and_forgotten():
    faults.fail_launch(5, device=1)
    faults.lose_card(2, after_ms=1000)
    launch, loss = faults.planned()
    assert launch == faults.PlannedFault("launch", 1, 5, 0)
    assert (loss.kind, loss.device, loss.count) == ("lost card", 2, 0)
    assert loss.after_ns >= 10**9
    faults.clear()
    assert faults.planned() == []
    assert _C._watch_bits() & 1 == 0  # strict mode watches, too


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: faults.fail_launch(0), ValueError, "begins at 1"),
        (lambda: faults.fail_copy(-1), ValueError, "begins at 1"),
        (lambda: faults.fail_allocation(1.5), ValueError, "whole number"),
        (lambda: faults.lose_card(0, after_ms=float("nan")), ValueError, "negative"),
        (lambda: faults.lose_card(0, after_ms=1e300), ValueError, "above"),
        (lambda: faults.lose_card(99), RuntimeError, "99"),
        (lambda: faults.lose_card(0, after_ms=-1), ValueError, "negative"),
        (lambda: faults.memory_error(1, ones(0)), ValueError, "musa:0"),
        (lambda: faults.memory_error(tensor=torch.ones(1)), ValueError, "cpu"),
        (lambda: faults.memory_error(tensor=torch.empty(0, device="musa")), ValueError, "no memory"),
    ],
)
def test_a_fault_that_cant_be_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
    assert faults.planned() == []


def in_a_new_process(setting: str, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TORCH_MUSA_SIM_FAULTS": setting, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_the_environment_plans_faults():
    code = """
import torch
a = torch.ones(4, device="musa")        # launch 1, allocation 1
b = torch.ones(4, device="musa:1")
assert [f.kind for f in torch.musa.faults.planned()] == ["allocation", "launch", "lost card"]
try:
    torch.empty(4, device="musa")       # allocation 2 of card 0
except torch.OutOfMemoryError as error:
    print("memory:", error)
a + 1
try:
    a + 1                               # launch 3 of card 0
except torch.AcceleratorError as error:
    print("launch:", error)
b + 1
torch.musa.set_device(1)
torch.musa._sleep(15_000_000)           # 10 ms
try:
    torch.musa.synchronize()
    b + 1
except torch.AcceleratorError as error:
    print("lost:", error)
print((torch.ones(4, device="musa:2") + 1).sum().item())
"""
    run = in_a_new_process("alloc:2@0, launch:3@0 ,lose:1@after=5ms", code)
    assert run.returncode == 0, run.stderr
    memory, launch, lost, rest = run.stdout.splitlines()
    assert "MUSA out of memory" in memory
    assert "unspecified launch failure" in launch
    assert "card musa:1 is lost" in lost
    assert rest == "8.0"


@pytest.mark.parametrize(
    "setting",
    [
        "launch",
        "launch:",
        "launch:0",
        "launch:x",
        "explode:1",
        "launch:1@9",
        "lose:1@2",
        "lose:0@after=5",
        "copy:1@after=ms",
    ],
)
def test_a_setting_that_means_nothing_is_refused(setting):
    run = in_a_new_process(setting, "import torch; torch.ones(1, device='musa')")
    assert run.returncode != 0
    assert "TORCH_MUSA_SIM_FAULTS" in run.stderr
