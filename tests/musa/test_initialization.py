"""torch.musa: what waits for the first use of the device, seen from fresh processes."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_queued_calls_run_once_at_first_use_in_order():
    out = run(
        """
        import torch
        ran = []
        torch.musa._lazy_call(lambda: ran.append("first"))
        torch.musa._lazy_call(lambda: ran.append("second"))
        assert not ran and not torch.musa.is_initialized()
        torch.ones(1, device="musa")
        assert torch.musa.is_initialized()
        torch.musa.init()
        torch.musa._lazy_call(lambda: ran.append("at once"))
        print(*ran, sep=",")
        """
    )
    assert out == "first,second,at once\n"


def test_of_queued_seeds_the_last_of_each_kind_counts_in_the_order_given():
    out = run(
        """
        import torch
        ran = []
        for number in range(3):
            torch.musa._lazy_call(lambda number=number: ran.append(f"one{number}"), seed=True)
            torch.musa._lazy_call(lambda number=number: ran.append(f"all{number}"), seed_all=True)
        torch.musa.init()
        print(*ran, sep=",")
        """
    )
    assert out == "one2,all2\n"


def test_a_queued_call_that_fails_says_where_it_was_made():
    out = run(
        """
        import torch
        def made_here():
            torch.musa._lazy_call(lambda: 1 / 0)
        made_here()
        try:
            torch.musa.init()
        except torch.musa.DeferredMusaCallError as error:
            print(error, type(error.__cause__).__name__)
        """
    )
    assert out.startswith("MUSA call failed lazily at initialization with error: division by zero")
    assert "in made_here" in out
    assert out.endswith("ZeroDivisionError\n")


def test_a_queued_call_may_use_the_device():
    out = run(
        """
        import torch
        torch.musa._lazy_call(lambda: print(torch.ones(3, device="musa").sum().item()))
        torch.musa.synchronize()
        """
    )
    assert out == "3.0\n"


def test_seeds_given_before_first_use_hold():
    out = run(
        """
        import torch
        torch.manual_seed(1)
        torch.musa.manual_seed_all(7)
        torch.musa.manual_seed(5)
        assert not torch.musa.is_initialized()
        first, second = torch.rand(3, device="musa:0"), torch.rand(3, device="musa:1")
        torch.musa.manual_seed_all(7)
        assert torch.equal(second, torch.rand(3, device="musa:1"))
        torch.musa.manual_seed(5)
        assert torch.equal(first, torch.rand(3, device="musa:0"))
        print(torch.musa.default_generators[0].initial_seed(), torch.musa.default_generators[1].initial_seed())
        """
    )
    assert out == "5 7\n"


def test_a_forked_child_of_a_user_is_told_to_spawn():
    out = run(
        """
        import os, sys, torch
        torch.ones(1, device="musa")
        if os.fork() == 0:
            assert torch.musa._is_in_bad_fork() and not torch.musa.is_initialized()
            try:
                torch.musa.init()
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert "Cannot re-initialize MUSA in forked subprocess" in out
    assert "'spawn'" in out


def test_the_tracker_of_seeds_hands_out_the_last_calls():
    tracker = torch.musa._LazySeedTracker()
    assert tracker.get_calls() == []
    tracker.queue_seed(len, ["a"])
    tracker.queue_seed_all(max, ["b"])
    assert tracker.get_calls() == [(len, ["a"]), (max, ["b"])]
    tracker.queue_seed(min, ["c"])
    assert tracker.get_calls() == [(max, ["b"]), (min, ["c"])]


@pytest.mark.parametrize("name", ["_initialized", "default_generators"])
def test_state_is_read_when_asked_for(name):
    torch.musa.init()
    assert getattr(torch.musa, name)
