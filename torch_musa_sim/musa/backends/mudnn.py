"""`torch.backends.mudnn`: the library behind convolutions, with torch.backends.cudnn's switches.

The flags are torch's own ones for cuDNN (see torch.backends.musa). `allow_tf32`, on by default as there, lets float32
convolutions take the time of the card's TF32 units; with `enabled` off they count as matrix products, whose flag is
torch.backends.musa.matmul.allow_tf32. `benchmark` and `deterministic` are kept for programs that read them back: a
convolution here has one algorithm, and it is deterministic.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import ContextProp, PropModule, _FP32Precision
from torch.backends import __allow_nonbracketed_mutation as _allow_mutation
from torch.backends import _get_fp32_precision_getter as _precision_getter
from torch.backends import _set_fp32_precision_setter as _precision_setter

from torch_musa_sim import _C

_FLAGS = ("enabled", "benchmark", "deterministic", "allow_tf32", "fp32_precision")


_VERSION = 3000  # 1000 * major + 100 * minor + patch of the interface that torch_musa's newest functions ask for


def version() -> int:
    """The version of muDNN's interface that is simulated, such as 3000 for 3.0.0."""
    return _VERSION


def is_available() -> bool:
    """True when a card is visible."""
    return _C._device_count() > 0


def is_acceptable(tensor: torch.Tensor) -> bool:
    """Whether a convolution of this tensor would go to muDNN: it is on musa, floating, and `enabled` is on."""
    return tensor.device.type == "musa" and tensor.is_floating_point() and torch._C._get_cudnn_enabled()


def set_flags(
    _allow_tf32: bool | None = None,
    *,
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _deterministic: bool | None = None,
    _fp32_precision: str | None = None,
) -> dict[str, bool | str]:
    """Sets the flags that aren't None and returns what they were, by name."""
    wanted = {
        "enabled": _enabled,
        "benchmark": _benchmark,
        "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
        "fp32_precision": _fp32_precision,
    }
    changed = {name: value for name, value in wanted.items() if value is not None}
    before = {name: getattr(module, name) for name in changed}
    for name, value in changed.items():
        setattr(module, name, value)
    return before


@contextmanager
def flags(
    allow_tf32: bool | None = True,
    *,
    enabled: bool | None = None,
    benchmark: bool | None = None,
    deterministic: bool | None = None,
    fp32_precision: str | None = None,
) -> Iterator[None]:
    """Sets flags inside the context and puts them back; None leaves one alone."""
    with _allow_mutation():
        before = set_flags(
            allow_tf32,
            _enabled=enabled,
            _benchmark=benchmark,
            _deterministic=deterministic,
            _fp32_precision=fp32_precision,
        )
    try:
        yield
    finally:
        with _allow_mutation():
            set_flags(**{f"_{name}": value for name, value in before.items()})  # type: ignore[arg-type]


class MudnnModule(PropModule):
    """The module with its switches as attributes."""

    enabled = ContextProp(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled)
    deterministic = ContextProp(torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic)
    benchmark = ContextProp(torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark)
    allow_tf32 = ContextProp(torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32)
    conv = _FP32Precision("cuda", "conv")
    rnn = _FP32Precision("cuda", "rnn")
    fp32_precision = ContextProp(_precision_getter("cuda", "all"), _precision_setter("cuda", "all"))


module = MudnnModule(sys.modules[__name__], "torch.backends.mudnn")
