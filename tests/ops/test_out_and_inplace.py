"""out= and in-place variants write where they were told to, resize, refuse and return what the CPU's do."""

from collections.abc import Callable, Iterator

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from .compare import tensors_in
from .device import DEVICE, op_db
from .harness import Check, call, check_samples
from .tally import TALLY
from .transfer import Transfer

OUT_SAMPLES = 8
# torch 2.13's CPU kernel writes beyond a batched destination with permuted dimensions: heap corruption, not an error.
STRIDED_OUT_IS_UNSAFE = {"tril", "triu"}
INPLACE_SAMPLES = 20


def exact(like: torch.Tensor) -> torch.Tensor:
    """A destination of the right shape, holding other numbers."""
    return torch.full_like(like, 1, memory_format=torch.contiguous_format)


def empty(like: torch.Tensor) -> torch.Tensor:
    """A destination that has to be resized."""
    return torch.empty(0, dtype=like.dtype)


def strided(like: torch.Tensor) -> torch.Tensor:
    """A destination with gaps and permuted dimensions."""
    if like.dim() == 0:
        return torch.ones(3, dtype=like.dtype)[1]
    gaps = torch.ones([*reversed(like.shape[1:]), 2 * like.shape[0]], dtype=like.dtype)
    return gaps[..., ::2].permute(*range(like.dim() - 1, -1, -1))


def wrong_dtype(like: torch.Tensor) -> torch.Tensor:
    """A destination the result can't be cast to without loss, where there is one."""
    return torch.ones(like.shape, dtype=torch.int8 if like.is_floating_point() or like.is_complex() else torch.bool)


def wrong_shape(like: torch.Tensor) -> torch.Tensor:
    """A destination with elements, of another shape."""
    return torch.ones([size + 1 for size in like.shape] or [2], dtype=like.dtype)


def out_checks(op: OpInfo, dtype: torch.dtype, make: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[Check]:
    for sample in op.sample_inputs("cpu", dtype):
        try:
            expected = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:
            continue
        if not tensors_in(expected) or any(t.layout != torch.strided for t in tensors_in(expected)):
            continue

        def check(move: Transfer, sample=sample, expected=expected):
            outs = [move(make(t)) for t in tensors_in(expected)]
            pointers = [t.data_ptr() for t in outs]
            out = outs[0] if isinstance(expected, torch.Tensor) else tuple(outs)
            try:
                with torch.no_grad():
                    result = call(op, sample, move, out=out)
            except RuntimeError as refusal:
                if make is not wrong_dtype:
                    raise
                return str(refusal).splitlines()[0]
            same = [r is o for r, o in zip(tensors_in(result), outs, strict=True)]
            kept = [t.data_ptr() == p for t, p in zip(outs, pointers, strict=True) if p and t.numel()]
            return [outs, same, kept]

        yield check


def inplace_checks(op: OpInfo, dtype: torch.dtype, spread: bool) -> Iterator[Check]:
    """With `spread` the tensor to be changed has gaps between its elements, which must stay as they were."""
    for sample in op.sample_inputs("cpu", dtype):
        if sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
            continue

        def check(move: Transfer, sample=sample):
            target = sample.input.detach()
            around = None
            if spread and target.dim() and target.layout == torch.strided:
                around = torch.full([*target.shape[:-1], 2 * target.shape[-1]], 3, dtype=target.dtype)
                around[..., ::2] = target
                around = move(around)
                target = around[..., ::2]
            else:
                target = move(target)
            version = target._version
            with torch.no_grad():
                result = op.inplace_variant(target, *move(sample.args), **move(sample.kwargs))
            return [target, around, result is target, target._version > version]

        yield check


out_ops = [op for op in op_db if op.supports_out]
inplace_ops = [op for op in op_db if op.inplace_variant]
FEW = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)


class TestOut(TestCase):
    @ops(out_ops, dtypes=OpDTypes.any_one)
    def test_out(self, device, dtype, op):
        for make in (empty, exact, strided, wrong_dtype, wrong_shape):
            if make is strided and op.name in STRIDED_OUT_IS_UNSAFE:
                TALLY.cpu_fails[("out= strided", op.full_name, "writes out of bounds")] += 1
                continue
            name = f"out= {make.__name__.replace('_', ' ')}"
            check_samples(name, op.full_name, dtype, out_checks(op, dtype, make), limit=OUT_SAMPLES)


class TestInplace(TestCase):
    @ops(inplace_ops, allowed_dtypes=FEW)
    def test_inplace(self, device, dtype, op):
        checks = inplace_checks(op, dtype, spread=False)
        check_samples("in-place", op.full_name, dtype, checks, limit=INPLACE_SAMPLES, upcast=True)

    @ops(inplace_ops, dtypes=OpDTypes.any_one)
    def test_inplace_strided(self, device, dtype, op):
        checks = inplace_checks(op, dtype, spread=True)
        check_samples("in-place, strided", op.full_name, dtype, checks, limit=INPLACE_SAMPLES)


instantiate_device_type_tests(TestOut, globals(), only_for=(DEVICE,))
instantiate_device_type_tests(TestInplace, globals(), only_for=(DEVICE,))
