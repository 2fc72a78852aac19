"""What tests of operators on musa use: cards, dtypes, data, comparators and OpTest."""

import platform
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_musa_sim import musa

from .comparators import (
    AbsDiffComparator,
    BooleanComparator,
    Comparator,
    DefaultComparator,
    QuantizedComparator,
    RelDiffComparator,
)
from .op_test import InplaceOpChek, OpTest

__all__ = [
    "MULTIGPU_AVAILABLE",
    "MUSA_AVAILABLE",
    "AbsDiffComparator",
    "BooleanComparator",
    "Comparator",
    "DefaultComparator",
    "InplaceOpChek",
    "OpTest",
    "QuantizedComparator",
    "RelDiffComparator",
    "gen_ip_port",
    "get_all_support_types",
    "get_all_support_types_withfp16",
    "get_all_types",
    "get_float_types",
    "get_raw_data",
    "skip_if_musa_unavailable",
    "skip_if_not_multiple_musa_device",
    "skip_on_cpu_arch",
    "test_on_nonzero_card_if_multiple_musa_device",
]

MUSA_AVAILABLE = musa.is_available()
MULTIGPU_AVAILABLE = musa.device_count() > 1

skip_if_musa_unavailable = pytest.mark.skipif(not MUSA_AVAILABLE, reason="no musa card is visible")
skip_if_not_multiple_musa_device = pytest.mark.skipif(not MULTIGPU_AVAILABLE, reason="needs two musa cards")


def skip_on_cpu_arch(arch: str = "aarch64", reason: str | None = None) -> pytest.MarkDecorator:
    """A mark that skips a test on hosts of this architecture, as platform.machine() names it."""
    return pytest.mark.skipif(platform.machine() == arch, reason=reason or f"not on {arch}")


def test_on_nonzero_card_if_multiple_musa_device(
    musa_device: int,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function runs with card `musa_device` current where there are several, else with the only one."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with musa.device(musa_device if musa.device_count() > 1 else 0):
                return function(*args, **kwargs)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        return run

    return decorate


# pytest takes every function named test_* in a test module for a test, and this one is imported there.
test_on_nonzero_card_if_multiple_musa_device.__test__ = False  # type: ignore[attr-defined]


def get_raw_data() -> list[torch.Tensor]:
    """float32 tensors of 1 to 8 dimensions with normal random values, on the CPU."""
    shape = (10, 10, 2, 2, 1, 3, 2, 2)
    return [torch.randn(shape[:dimensions]) for dimensions in range(1, len(shape) + 1)]


def gen_ip_port() -> tuple[str, str]:
    """("127.0.0.1", a TCP port that is free now), both as str."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1", str(probe.getsockname()[1])


def get_all_support_types() -> list[torch.dtype]:
    """The three dtypes that every operator takes."""
    return [torch.float32, torch.int32, torch.int64]


def get_all_support_types_withfp16() -> list[torch.dtype]:
    """get_all_support_types and float16."""
    return [*get_all_support_types(), torch.float16]


def get_float_types() -> list[torch.dtype]:
    """The floating-point dtypes of matrix products."""
    return [torch.float32, torch.float16] + ([torch.bfloat16] if musa.is_bf16_supported() else [])


def get_all_types() -> list[torch.dtype]:
    """Real numbers of every width, and bool."""
    whole = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    return [torch.bool, *whole, *get_float_types(), torch.float64]


def _complex_musa_to_cpu_adjust(musa_complex: torch.Tensor) -> torch.Tensor:
    """A complex tensor on the CPU, without changing its values."""
    return torch.view_as_complex(torch.view_as_real(musa_complex.resolve_conj()).cpu())


def _complex_cpu_to_musa_adjust(cpu_complex: torch.Tensor, musa_device: Any) -> torch.Tensor:
    """A complex tensor on a card, without changing its values."""
    return torch.view_as_complex(torch.view_as_real(cpu_complex.resolve_conj()).to(musa_device))
