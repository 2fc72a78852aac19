"""The differential check behind every operator test: do it on the CPU, do it on musa, compare."""

import itertools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .compare import difference, tensors_in
from .device import CPU_DTYPES, DEVICE
from .tally import TALLY
from .transfer import Transfer

# One check of one sample: takes the function that carries arguments to a device, returns what is to be compared.
Check = Callable[[Transfer], Any]

# Their values are whatever lay in memory.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_",
                 "resize_as_"}  # fmt: skip

# Where the CPU has no kernel for a dtype, the reference is its kernel for this one, cast back.
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.uint8,
    torch.uint8: torch.float64,
    torch.int8: torch.float64,
    torch.int16: torch.float64,
    torch.int32: torch.float64,
    torch.int64: torch.float64,
}


@dataclass
class Outcome:
    """What a check returned or raised."""

    value: Any = None
    error: Exception | None = None

    def __str__(self) -> str:
        if self.error is None:
            return "passed"
        text = str(self.error).strip() or "no text"
        return f"{type(self.error).__name__}: {text.splitlines()[0][:200]}"


def outcome(check: Check, move: Transfer) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1234)
        try:
            return Outcome(check(move))
        except Exception as error:
            return Outcome(error=error)


class DrawsNumbers(TorchDispatchMode):
    """Notes whether a random operator runs on the device's own generator."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (kwargs or {}).get("generator") is not None
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags and not given
        return func(*args, **(kwargs or {}))


# Their tensor arguments say how to split, not what, and stay on the CPU on every device.
HOST_ARGUMENTS = {"tensor_split"}


def call(op: Any, sample: Any, move: Transfer, **options: Any) -> Any:
    """Calls the operator on the device of `move`; a factory is told it, having no tensor to see it from."""
    kwargs = dict(sample.kwargs)
    if getattr(op, "is_factory_function", False):
        kwargs.setdefault("device", "cpu")
    args = sample.args if op.full_name in HOST_ARGUMENTS else move(sample.args)
    return op(move(sample.input), *args, **move(kwargs), **options)


def is_random(check: Check) -> bool:
    with DrawsNumbers() as mode:
        outcome(check, Transfer("cpu"))
    return mode.seen


def upcast_reference(check: Check, dtype: torch.dtype) -> Outcome:
    """What the CPU computes in the wider dtype, cast back to `dtype`."""
    wide = WIDER.get(dtype)
    if wide is None:
        return Outcome(error=TypeError(f"no wider dtype to compare {dtype} with"))
    result = outcome(check, Transfer("cpu", cast={dtype: wide}))
    back = {wide: dtype}
    if dtype == torch.float16:
        back[torch.complex64] = torch.complex32

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(back.get(value.dtype, value.dtype))
        if isinstance(value, (list, tuple)):
            return [narrow(entry) for entry in value]
        return value

    return Outcome(narrow(result.value), result.error)


# Their results have CUDA's strides, which aren't the CPU's.
LAID_OUT_AS_ON_CUDA = {"nn.functional.scaled_dot_product_attention"}

# Their native kernels compute in float32 and round once, where the CPU's round to 16 bits in between: results that
# differ are compared with the wider dtype's.
ROUNDED_ONCE = {"log_softmax", "masked.log_softmax", "nn.functional.linear_cross_entropy"}


_SIXTEEN_BITS = frozenset({torch.bfloat16, torch.float16})
# Operators whose larger terms cancel, and in which dtypes that decides (None: in all).
CANCELS: dict[str, frozenset[torch.dtype] | None] = {
    # The gradient is a product of reflections whose terms are orders of magnitude larger than their sum.
    "linalg.householder_product": None,
    # A difference of logits, which torch rounds to 16 bits first on every device but the one named cpu.
    "nn.functional.linear_cross_entropy.chunked": _SIXTEEN_BITS,
    "nn.functional.linear_cross_entropy.chunked_none": _SIXTEEN_BITS,
}


def check_samples(
    name: str,
    op_name: str,
    dtype: torch.dtype | None,
    checks: Iterable[Check],
    *,
    limit: int | None = None,
    strides: bool = True,
    upcast: bool = False,
) -> None:
    """Runs each check on the CPU and on the device and fails with all that differ.

    `name` and `op_name` identify the test in the report.
    """
    failures = []
    for index, check in enumerate(itertools.islice(checks, limit)):
        found = _check_one(name, op_name, dtype, check, strides and op_name not in LAID_OUT_AS_ON_CUDA, upcast)
        if found:
            failures.append(f"sample {index}: {found}")
    if failures:
        more = f"\n... and {len(failures) - 5} more samples" if len(failures) > 5 else ""
        pytest.fail(f"{name} of {op_name} [{dtype}] on {DEVICE}:\n" + "\n".join(failures[:5]) + more, pytrace=False)


def _check_one(
    name: str, op_name: str, dtype: torch.dtype | None, check: Check, strides: bool, upcast: bool
) -> str | None:
    reference = outcome(check, Transfer("cpu"))
    if reference.error and upcast and dtype not in CPU_DTYPES[op_name]:
        wider = upcast_reference(check, dtype)
        if not wider.error:
            reference = wider
            TALLY.upcast.add((op_name, str(dtype)))
    result = outcome(check, Transfer(DEVICE))
    if reference.error:
        if not result.error:
            return f"the CPU raises {reference}, {DEVICE} raises nothing"
        if type(result.error) is not type(reference.error) and not _both_refuse(result.error, reference.error):
            return f"raises {result}, the CPU raises {reference}"
        TALLY.cpu_fails[(name, op_name, _kind(reference))] += 1
        return None
    TALLY.cpu[name] += 1
    if result.error:
        return f"raises {result}"
    values = op_name not in UNINITIALISED
    dtypes = CANCELS.get(op_name, frozenset())
    cancels = dtypes is None or dtype in dtypes
    found = difference(result.value, reference.value, DEVICE, values, strides, cancels=cancels)
    if found and values and is_random(check):
        TALLY.random.add(op_name)
        found = difference(result.value, reference.value, DEVICE, values=False, strides=strides)
    if found and op_name in ROUNDED_ONCE:
        wider = upcast_reference(check, dtype)
        if not wider.error:
            found = difference(result.value, wider.value, DEVICE, values, strides)
    if found:
        return f"result {found}"
    TALLY.musa[name] += 1
    TALLY.ops.add(op_name)
    TALLY.pairs.add((op_name, str(dtype)))
    return None


def _both_refuse(one: Exception, other: Exception) -> bool:
    """NotImplementedError is a RuntimeError: which of the two a missing kernel raises is not a difference."""
    return isinstance(one, RuntimeError) and isinstance(other, RuntimeError)


def _kind(result: Outcome) -> str:
    """An error without its numbers, so that equal failures of many samples are reported once."""
    return "".join("#" if letter.isdigit() else letter for letter in str(result))[:110]


def differentiable(value: Any) -> list[torch.Tensor]:
    return [t for t in tensors_in(value) if t.requires_grad]


def cotangents(outputs: list[torch.Tensor], move: Transfer) -> list[torch.Tensor]:
    """The same pseudo-random vector for each output on every device."""
    generator = torch.Generator().manual_seed(7)
    drawn = []
    for tensor in outputs:
        real = torch.float64 if tensor.dtype in (torch.float64, torch.complex128) else torch.float32
        vector = torch.randn(tensor.shape, generator=generator, dtype=real)
        drawn.append(move(vector.to(tensor.dtype)))
    return drawn
