"""The virtual clocks as torch code sees them: overlap, waiting, synchronising operators, exact repetition."""

import torch

from torch_musa_sim import _C


def time_of(launch):
    """Virtual milliseconds that `launch` takes on the current stream, its memory being cached already."""
    launch()
    torch.musa.synchronize()
    begin, end = torch.musa.Event(enable_timing=True), torch.musa.Event(enable_timing=True)
    begin.record()
    launch()
    end.record()
    torch.musa.synchronize()
    return begin.elapsed_time(end)


def matrix(size: int) -> torch.Tensor:
    return torch.ones(size, size, device="musa", dtype=torch.bfloat16)


def work() -> None:
    """A kernel of 400 us that costs the host of this test nothing (the card runs at 1.5 GHz)."""
    torch.musa._sleep(600_000)


def test_a_larger_product_takes_longer_by_the_ratio_of_its_arithmetic():
    small, large = matrix(2048), matrix(4096)
    first, second = time_of(lambda: small @ small), time_of(lambda: large @ large)
    assert 7.0 < second / first < 8.0  # 8 times the operations, the launch apart


def test_two_streams_overlap_and_one_stream_does_not():
    side = torch.musa.Stream()

    def serial():
        for _ in range(8):
            work()

    def overlapped():
        side.wait_stream(torch.musa.current_stream())
        for _ in range(4):
            work()
        with torch.musa.stream(side):
            for _ in range(4):
                work()
        torch.musa.current_stream().wait_stream(side)

    assert 1.6 < time_of(serial) / time_of(overlapped) < 2.1


def test_launching_is_asynchronous_and_item_waits():
    value = torch.ones((), device="musa")
    torch.musa.synchronize()
    before = _C._host_clock_ns()
    work()
    launched = _C._host_clock_ns()
    value.item()
    waited = _C._host_clock_ns()
    assert launched - before < 100_000 < waited - launched


def test_operators_that_synchronise_on_cuda_synchronise_here():
    mask, counts = torch.ones(8, device="musa", dtype=torch.bool), torch.arange(8, device="musa")
    synchronising = {
        "nonzero": lambda: mask.nonzero(),
        "masked_select": lambda: torch.masked_select(counts, mask),
        "bool index": lambda: counts[mask],
        "unique": lambda: torch.unique(counts),
        "bincount": lambda: torch.bincount(counts),
        "equal": lambda: torch.equal(counts, counts),
        "item": lambda: counts[3].item(),
        "repeat_interleave": lambda: torch.repeat_interleave(counts),
    }
    asynchronous = {
        "add": lambda: counts + 1,
        "index": lambda: counts[counts],
        "sum": lambda: counts.sum(),
        "topk": lambda: counts.topk(2),
        "where": lambda: torch.where(mask, counts, 0),
    }
    for waits, operators in ((True, synchronising), (False, asynchronous)):
        for name, operator in operators.items():
            torch.musa.synchronize()
            work()
            before = _C._host_clock_ns()
            operator()
            assert (_C._host_clock_ns() - before > 150_000) == waits, name


def test_a_pinned_copy_overlaps_and_a_pageable_one_waits():
    pageable = torch.ones(1 << 22)
    pinned = pageable.pin_memory()
    torch.musa.synchronize()
    before = _C._host_clock_ns()
    pinned.to("musa", non_blocking=True)
    asynchronous = _C._host_clock_ns()
    torch.musa.synchronize()
    middle = _C._host_clock_ns()
    pageable.to("musa")
    assert asynchronous - before < 200_000 < _C._host_clock_ns() - middle


def test_twenty_runs_of_a_training_step_take_the_same_virtual_time():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).to("musa")
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(32, 64, device="musa")
    seen = set()
    for step in range(23):
        torch.musa.synchronize()
        before = _C._host_clock_ns()
        step_once(model, optimizer, batch)
        torch.musa.synchronize()
        if step >= 3:  # optimizer state and cached memory exist from the second step on
            seen.add(_C._host_clock_ns() - before)
    assert len(seen) == 1


def step_once(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
