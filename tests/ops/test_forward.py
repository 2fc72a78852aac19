"""Every (operator, dtype) of the contract gives the CPU's values, dtypes, shapes and strides."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from .device import DEVICE, op_db
from .harness import Check, call, check_samples
from .transfer import Transfer

# Samples per pair: float32 shows the shapes and options, the other dtypes only have to show their kernels.
FLOAT32_SAMPLES = 200
OTHER_SAMPLES = 8


def nansum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> torch.Tensor:
    return x.masked_fill(x.isnan(), 0).sum(dim, keepdim, dtype=dtype)


def nanmean(x: torch.Tensor, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> torch.Tensor:
    return nansum(x, dim, keepdim, dtype) / (~x.isnan()).sum(dim, keepdim)


# The reference where the CPU has no kernel for complex numbers and no wider dtype does.
COMPLEX_FORMULAS = {"nansum": nansum, "nanmean": nanmean}


def forward_checks(op: OpInfo, dtype: torch.dtype) -> Iterator[Check]:
    for sample in op.sample_inputs("cpu", dtype):

        def check(move: Transfer, sample=sample):
            with torch.no_grad():
                if move.device.type == "cpu" and dtype.is_complex and op.name in COMPLEX_FORMULAS:
                    return COMPLEX_FORMULAS[op.name](sample.input, *sample.args, **sample.kwargs)
                return call(op, sample, move)

        yield check


class TestForward(TestCase):
    @ops(op_db)
    def test_forward(self, device, dtype, op):
        limit = FLOAT32_SAMPLES if dtype == torch.float32 else OTHER_SAMPLES
        check_samples("forward", op.full_name, dtype, forward_checks(op, dtype), limit=limit, upcast=True)


@pytest.mark.full
class TestForwardAll(TestCase):
    @ops(op_db)
    def test_forward_all_samples(self, device, dtype, op):
        check_samples("forward, all samples", op.full_name, dtype, forward_checks(op, dtype), upcast=True)


instantiate_device_type_tests(TestForward, globals(), only_for=(DEVICE,))
instantiate_device_type_tests(TestForwardAll, globals(), only_for=(DEVICE,))
