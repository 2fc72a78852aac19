"""Inductor's view of the device."""

import statistics
from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch._inductor import utils
from torch._inductor.runtime.benchmarking import Benchmarker

from torch_musa_sim import musa

from .._refused import NO_AOT, NO_TRITON, refused

GPU_TYPES = ["musa"]


def is_gpu(device: str | None) -> bool:
    """Whether the type of a device, "musa" say, is the card's."""
    return device in GPU_TYPES


def has_triton() -> bool:
    """False: Triton has no simulated card to compile for, installed or not."""
    return False


class TritonBenchmarker(Benchmarker):
    """Times functions on a card, by the card's own clock."""

    @cached_property
    def triton_do_bench(self) -> Callable[..., Any]:
        """Triton's `do_bench`; raises NotImplementedError: `benchmark_gpu` does it here."""
        raise NotImplementedError(f"TritonBenchmarker.triton_do_bench: {NO_TRITON}")

    def benchmark_gpu(self, _callable: Callable[[], Any], **kwargs: Any) -> float:
        """Median milliseconds of virtual time that a call takes on the current card.

        warmup, rep: milliseconds of warm-up and of measuring that are aimed at, 25 and 100; return_mode: "median",
        "mean", "min" or "max". Other options of Triton's do_bench have no effect on virtual time and are refused.
        """
        warmup, rep = kwargs.pop("warmup", 25), kwargs.pop("rep", 100)
        mode = kwargs.pop("return_mode", "median")
        summaries: dict[str, Callable[[list[float]], float]] = {
            "median": statistics.median,
            "mean": statistics.fmean,
            "min": min,
            "max": max,
        }
        if mode not in summaries:
            raise ValueError(f"return_mode is one of {sorted(summaries)}, not {mode!r}")
        if kwargs:
            raise TypeError(f"benchmark_gpu takes warmup, rep and return_mode, not {sorted(kwargs)}")
        estimate = max(self._milliseconds(_callable), 1e-3)
        for _ in range(min(int(warmup / estimate), 10)):
            _callable()
        times = [self._milliseconds(_callable) for _ in range(max(1, min(int(rep / estimate), 100)))]
        return summaries[mode](times)

    @staticmethod
    def _milliseconds(function: Callable[[], Any]) -> float:
        start, end = (musa.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)


@refused(NO_AOT)
def aot_inductor_launcher(so_path: str, device: str) -> str:
    """Would write the C++ program that runs a library of AOTInductor's on a card."""
    raise AssertionError


def _apply_util_patches() -> None:
    """Adds "musa" to the device types that `torch._inductor.utils.is_gpu` knows."""
    utils.GPU_TYPES.extend(kind for kind in GPU_TYPES if kind not in utils.GPU_TYPES)
