"""Which of several kernels is taken: by the model, by times, from the file of choices."""

import os
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import torch

from torch_musa_sim import _C

Explained = dict[str, object]

# What every script of a test can use. A child is a process of its own: it begins where no card was touched yet.
BEGINNING = """
import os, sys, torch
from torch_musa_sim import _C
cache = os.environ["TORCH_MUSA_SIM_AUTOTUNE_CACHE"]

def child(function, mode="1", wait=True, **environment):
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.environ.update(environment, TORCH_MUSA_SIM_AUTOTUNE=mode)
        code = 1
        try:
            function()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    if wait:
        assert os.waitpid(process, 0)[1] == 0

def product(k=300):
    a, b = torch.ones(4, k).to("musa"), torch.ones(70, k).to("musa")
    assert (torch.nn.functional.linear(a, b) == k).all()

def explain():
    product()
    print(_C._explain_product("mm", 1, 4, 70, 300, torch.float32, False, True, False)["source"])
"""


def run(code: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Python in a fresh process, where products are timed."""
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + textwrap.dedent(code)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}",
            "TORCH_MUSA_SIM_AUTOTUNE": "1",
            "TORCH_MUSA_SIM_AUTOTUNE_CACHE": str(cache),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def product(*, m: int = 4, n: int = 70, k: int = 300, columns: bool = True, measure: bool = False) -> Explained:
    return _C._explain_product("mm", 1, m, n, k, torch.float32, False, columns, measure)


def named(answer: Explained) -> dict[str, dict[str, object]]:
    return {variant["name"]: variant for variant in answer["variants"]}  # type: ignore[attr-defined]


def lines_of(cache: Path) -> list[str]:
    return [line for line in cache.read_text().splitlines() if "\t" in line]


def test_the_model_takes_the_least_estimate_of_what_can_serve() -> None:
    for m in (1, 8, 64, 1000):
        for n in (1, 20, 512):
            for columns in (False, True):
                answer = product(m=m, n=n, columns=columns)
                estimates = {
                    name: variant["estimate_ns"] for name, variant in named(answer).items() if not variant["excluded"]
                }
                assert answer["source"] == "model"
                taken = str(answer["taken"])
                exchanged = n < 64
                worth = {name: x for name, x in estimates.items() if exchanged or "exchanged" not in name}
                assert estimates[taken] == min(worth.values())  # type: ignore[type-var]


def test_one_row_of_a_linear_layer_is_read_in_place_and_many_are_packed() -> None:
    assert product(m=1, n=4096, k=4096)["taken"] == "dot"
    assert product(m=1000, n=4096, k=4096)["taken"] == "packed"
    assert "b is not stored by columns" in str(named(product(columns=False))["dot"]["excluded"])


def test_one_query_streams_the_keys_and_many_take_tiles() -> None:
    assert _C._explain_attention(1, 8, 2, 1, 4096, 64, torch.bfloat16, False, False)["taken"] == "streams"
    many = _C._explain_attention(1, 8, 2, 100, 4096, 64, torch.bfloat16, True, False)
    assert many["taken"] == "tiles"
    assert "more than 16 rows" in named(many)["streams"]["excluded"]


def test_measuring_for_an_explanation_gives_times_of_all_candidates_and_keeps_nothing() -> None:
    variants = named(product(measure=True))
    assert all(variant["time_ns"] for variant in variants.values())
    assert all(variant["time_ns"] is None for variant in named(product()).values())


def test_a_product_is_timed_once_and_its_choice_is_kept_for_other_processes(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "choices"
    code = """
        child(explain, "cached")
        print(os.path.exists(cache))
        child(explain)
        before = open(cache).read()
        child(explain)
        child(explain, "cached")
        child(explain, "0")
        print(open(cache).read() == before)
    """
    done = run(code, cache)
    kept = f"measured, from {cache}"
    assert done.stdout.splitlines() == ["model", "False", "measured in this process", kept, kept, "model", "True"]
    assert done.stderr == ""
    (line,) = lines_of(cache)
    assert "\tmm 4x96x384 Float a=rows b=columns c=rows " in line


def test_processes_that_write_at_once_keep_each_others_choices(tmp_path: Path) -> None:
    cache = tmp_path / "choices"
    code = """
        for i in range(4):
            child(lambda: product(16 << i), wait=False)
        for _ in range(4):
            assert os.wait()[1] == 0
    """
    assert run(code, cache).stderr == ""
    assert len(lines_of(cache)) == 4
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".new"] == []


def test_a_damaged_file_is_ignored_with_one_line_and_replaced(tmp_path: Path) -> None:
    cache = tmp_path / "choices"
    code = """
        child(product)
        good = open(cache).read()
        lines = good.splitlines(keepends=True)
        for text in (
            "",
            good[: len(good) // 2],
            good.replace("=", "=1", 1),
            chr(0) * 50,
            "".join(lines[:2] + lines[3:]),
            good.replace("choices 1", "choices 999"),
        ):
            open(cache, "w").write(text)
            child(explain)
            child(explain)
    """
    done = run(code, cache)
    told = done.stderr.splitlines()
    assert [line.endswith(f"{cache} is damaged; it is ignored") for line in told[:5]] == [True] * 5
    assert told[5].endswith("is of another version; it is ignored")
    assert len(told) == 6
    assert done.stdout.splitlines() == ["measured in this process", f"measured, from {cache}"] * 6
    assert len(lines_of(cache)) == 1


def test_choices_of_another_machine_are_not_used(tmp_path: Path) -> None:
    cache = tmp_path / "choices"
    code = """
        child(product, TORCH_MUSA_SIM_ISA="portable")
        machine = open(cache).read().splitlines()[1]
        print(machine)
        child(product, TORCH_MUSA_SIM_ISA="best")
    """
    done = run(code, cache)
    assert done.stdout.startswith("portable, ")
    if _C._best_instruction_set() != "portable":
        assert "is of another machine (portable, " in done.stderr
        assert not cache.read_text().splitlines()[1].startswith("portable, ")


def test_a_place_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("product(); product(80); explain()", tmp_path / "file" / "choices")
    assert done.stderr.count("\n") == 1
    assert "can't be written" in done.stderr
    assert done.stdout == "measured in this process\n"


def test_timing_leaves_results_counters_and_the_virtual_clock_alone(tmp_path: Path) -> None:
    code = """
        def work():
            torch.manual_seed(3)
            a, b, c = torch.randn(8, 200), torch.randn(200, 24), torch.randn(8, 24)
            on_card = c.to("musa")
            on_card.addmm_(a.to("musa"), b.to("musa"), beta=2, alpha=3)
            torch.testing.assert_close(on_card.cpu(), 2 * c + 3 * (a @ b), rtol=1e-4, atol=1e-3)
            q = torch.randn(1, 2, 3, 16)
            out = torch.nn.functional.scaled_dot_product_attention(*[q.to("musa")] * 3, is_causal=True)
            cpu = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            torch.testing.assert_close(out.cpu(), cpu)
            torch.musa.synchronize()
            for op in torch.musa.op_statistics():
                print(op.name, op.calls, op.bytes, op.device_ns, end="; ")
            print(torch.musa.max_memory_allocated())

        child(work)
        child(work, "0")
    """
    cache = tmp_path / "choices"
    timed, plain = run(code, cache).stdout.splitlines()
    assert timed == plain
    assert "addmm_ 1 " in timed
    assert len(lines_of(cache)) == 2


def test_nothing_is_timed_while_a_graph_is_captured_nor_for_tensors_without_values(tmp_path: Path) -> None:
    code = """
        from torch._subclasses import FakeTensorMode
        a, b = torch.ones(4, 300, device="musa"), torch.ones(300, 70, device="musa")
        graph = torch.musa.MUSAGraph()
        with torch.musa.graph(graph):
            out = a @ b
        with FakeTensorMode():
            torch.ones(4, 300, device="musa") @ torch.ones(300, 70, device="musa")
        torch.ones(4, 300, device="meta") @ torch.ones(300, 70, device="meta")
        print(os.path.exists(cache))
        graph.replay()
        assert (out == 300).all()
    """
    assert run(code, tmp_path / "choices").stdout == "False\n"


def test_a_wrong_mode_is_refused(tmp_path: Path) -> None:
    code = """
        def refused():
            try:
                torch.ones(1, device="musa")
            except RuntimeError as error:
                print(str(error).splitlines()[0])

        child(refused, "2")
    """
    assert "TORCH_MUSA_SIM_AUTOTUNE=2 is not accepted; accepted: 0 | 1 | cached" in run(code, tmp_path / "c").stdout
