"""Helpers of tests beyond single operators."""

import contextlib
import functools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._comparison import TensorLikePair
from torch.utils._mode_utils import no_dispatch

from torch_musa_sim import musa

_SUBPROCESS_INVOKE_CMD = [sys.executable, "-m", "torch_musa.testing.common_utils"]

_skip_without_card = pytest.mark.skipif(not musa.is_available(), reason="no musa card is visible")


@functools.lru_cache
def get_cycles_per_ms() -> float:
    """Clock cycles a millisecond of virtual time, as torch.musa._sleep counts them."""
    cycles = 1_000_000_000  # long beside what a launch costs
    start, end = musa.Event(enable_timing=True), musa.Event(enable_timing=True)
    start.record()
    musa._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / start.elapsed_time(end)


def get_musa_arch() -> int:
    """The current card's architecture as a number, such as 31."""
    major, minor = musa.get_device_capability()
    return 10 * major + minor


def cpu_and_musa() -> tuple[Any, ...]:
    """Values for parametrize: "cpu", and "musa" with a mark that skips it where no card is visible."""
    return "cpu", pytest.param(
        "musa", marks=pytest.mark.skipif(not musa.is_available(), reason="no musa card is visible")
    )


def needs_musa(test_func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: skips a test where no card is visible."""
    marked: Callable[..., Any] = _skip_without_card(test_func)
    return marked


@contextlib.contextmanager
def disable_functorch() -> Iterator[None]:
    """No functorch transform applies inside."""
    guard = torch._C._DisableFuncTorch()
    try:
        yield
    finally:
        del guard


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """The random states of the CPU and of the current card are the same afterwards as before."""
    with no_dispatch(), disable_functorch():
        on_cpu = torch.get_rng_state()
        on_card = musa.get_rng_state() if musa.is_available() else None
    try:
        yield
    finally:
        with no_dispatch(), disable_functorch():
            torch.set_rng_state(on_cpu)
            if on_card is not None:
                musa.set_rng_state(on_card)


class ImagePair(TensorLikePair):
    """Comparison for assert_close: with `mae`, the mean absolute error of two images decides (limit: atol)."""

    def __init__(self, actual: Any, expected: Any, *, mae: bool = False, **other_parameters: Any) -> None:
        super().__init__(actual, expected, **other_parameters)
        self.mae = mae

    def compare(self) -> None:
        """Raises AssertionError unless the two agree."""
        if not self.mae:
            super().compare()
            return
        actual, expected = self.actual, self.expected
        self._compare_attributes(actual, expected)
        actual, expected = self._equalize_attributes(actual, expected)
        error = (actual.double() - expected.double()).abs().mean().item()
        if error > self.atol:
            self._fail(AssertionError, f"the mean absolute error is {error}, but only {self.atol} is allowed")


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Any = None,
    **kwargs: Any,
) -> None:
    """As torch.testing.assert_close; `mae=True` compares images by their mean absolute error (see ImagePair)."""
    from torch.testing._comparison import BooleanPair, NonePair, NumberPair, not_close_error_metas

    failures = not_close_error_metas(
        actual, expected, pair_types=(NonePair, BooleanPair, NumberPair, ImagePair), allow_subclasses=allow_subclasses,
        rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype,
        check_layout=check_layout, check_stride=check_stride, **kwargs,
    )  # fmt: skip
    if failures:
        raise failures[0].to_error(msg)


assert_equal = functools.partial(assert_close, rtol=0, atol=0)


def spawn_isolated_test(fn: Callable[..., Any]) -> Callable[..., None]:
    """Decorator: the test runs in a process of its own, which must end well within 10 minutes.

    The function must be importable by its module's file; arguments are pickled.
    """

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> None:
        if os.environ.get("TORCH_MUSA_ISOLATED_TEST") == fn.__name__:
            fn(*args, **kwargs)
            return
        with tempfile.NamedTemporaryFile(suffix=".pkl") as file:
            pickle.dump((fn.__code__.co_filename, fn.__qualname__, args, kwargs), file)
            file.flush()
            environment = os.environ | {"TORCH_MUSA_ISOLATED_TEST": fn.__name__}
            done = subprocess.run(
                [*_SUBPROCESS_INVOKE_CMD, file.name], capture_output=True, text=True, timeout=600, env=environment
            )
        if done.returncode:
            raise AssertionError(f"{fn.__qualname__} failed in its process:\n{done.stdout}{done.stderr}")

    return run


def _run_subprocess() -> None:
    """What the process of an isolated test does: loads the test's file and calls the test."""
    import runpy

    with open(sys.argv[1], "rb") as file:
        path, name, args, kwargs = pickle.load(file)
    found: Any = runpy.run_path(path)
    first, *rest = name.split(".")
    found = found[first]
    for part in rest:
        found = getattr(found, part)
    found(*args, **kwargs)


if __name__ == "__main__":
    _run_subprocess()
