"""The allocator under many threads, in forked children and while the interpreter exits."""

from __future__ import annotations

from conftest import RunScript


def test_a_million_random_operations_from_six_threads_leave_nothing_allocated(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        from torch_musa_sim import _C

        kept = torch.empty(1000, dtype=torch.uint8, device="musa")
        before = torch.musa.memory_stats()
        allocations = sum(_C._allocator_stress(6, 250_000, seed, 0, 3) for seed in range(4))
        after = torch.musa.memory_stats()
        for key in ("allocation", "allocated_bytes", "requested_bytes"):
            for pool in ("all", "small_pool", "large_pool"):
                name = f"{key}.{pool}"
                assert after[f"{name}.current"] == before[f"{name}.current"], name
                assert after[f"{name}.allocated"] - after[f"{name}.freed"] == after[f"{name}.current"], name
        assert after["allocation.all.allocated"] - before["allocation.all.allocated"] == allocations > 450_000
        assert after["allocation.all.peak"] <= 6 * 200 + 65 + 1
        del kept
        torch.musa.empty_cache()
        final = torch.musa.memory_stats()
        for key in ("allocation", "active", "segment", "inactive_split"):
            assert final[f"{key}.all.current"] == 0, key
        for key in ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes", "requested_bytes"):
            assert final[f"{key}.all.current"] == 0, key
        assert torch.musa.memory_snapshot() == []
        """
    )


def test_a_forked_child_may_drop_inherited_tensors_but_not_allocate(run_script: RunScript) -> None:
    run_script(
        """
        import os
        import torch

        tensors = [torch.ones(n, device="musa") for n in (10, 100_000, 1_000_000)]
        pinned = torch.ones(100).pin_memory()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.empty(10, device="musa")
            except RuntimeError as error:
                code = 0 if "Cannot re-initialize MUSA in forked subprocess" in str(error) else 2
            tensors.clear()
            del pinned
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [t.sum().item() for t in tensors] == [10, 100_000, 1_000_000]
        assert torch.musa.memory_stats()["allocation.all.current"] == 3
        """
    )


def test_the_interpreter_exits_cleanly_with_live_tensors_and_threads(run_script: RunScript) -> None:
    result = run_script(
        """
        import threading
        import time
        import torch

        def hold_for_ever():  # a daemon: cut off while it owns tensors and bins
            keep = [torch.empty(n, device="musa") for n in (10, 1000, 1_000_000)]
            del keep[0]
            threading.Event().wait()

        def outlive_main():
            threading.main_thread().join()
            keep = [torch.empty(3000, device="musa") for _ in range(100)]
            del keep[::2]

        threading.Thread(target=hold_for_ever, daemon=True).start()
        threading.Thread(target=outlive_main).start()
        time.sleep(0.1)
        torch.kept = [torch.ones(n, device="musa") for n in (1, 1000, 1_000_000)]
        side = torch.musa.Stream()
        torch.kept[1].record_stream(side)
        x = torch.ones(10, device="musa", requires_grad=True)
        x.sum().backward()
        """
    )
    assert result.stderr == ""
