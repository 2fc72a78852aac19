"""The _foreach_ operators, out of place and in place, equal the CPU's for every list of tensors of torch's samples."""

import itertools
import os
from collections.abc import Iterator

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)
from torch.testing._internal.common_utils import TestCase

from .device import CPU_DTYPES, DEVICE
from .harness import Check, check_samples
from .transfer import Transfer

FOREACH = [*foreach_unary_op_db, *foreach_binary_op_db, *foreach_pointwise_op_db, *foreach_reduce_op_db,
           *foreach_other_op_db]  # fmt: skip
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
SAMPLES = 12

CPU_DTYPES.update({op.full_name: frozenset(op.dtypes) for op in FOREACH})


def foreach_checks(op, dtype: torch.dtype, inplace: bool) -> Iterator[Check]:
    # Every few of the samples: they are many and differ in the lengths of the list and the kinds of scalars.
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, noncontiguous=inplace), 0, None, 3):

        def check(move: Transfer, sample=sample):
            tensors, args, kwargs = move(sample.input), move(sample.args), move(sample.kwargs)
            with torch.no_grad():
                if not inplace:
                    return op(tensors, *args, **kwargs)
                pointers = [t.data_ptr() for t in tensors]
                op.inplace_variant(tensors, *args, **kwargs)
            return [tensors, [t.data_ptr() == p for t, p in zip(tensors, pointers, strict=True)]]

        yield check


# The CPU multiplies matrices of integers, CUDA doesn't, and strict mode neither.
STRICT = os.environ.get("TORCH_MUSA_SIM_STRICT") == "1"


class TestForeach(TestCase):
    @ops([op for op in FOREACH if op.method_variant], dtypes=OpDTypes.supported, allowed_dtypes=DTYPES)
    def test_foreach(self, device, dtype, op):
        if STRICT and op.name == "_foreach_mm" and dtype == torch.int64:
            self.skipTest("CUDA has no matrix product of integers")
        check_samples("foreach", op.full_name, dtype, foreach_checks(op, dtype, inplace=False), limit=SAMPLES)

    @ops([op for op in FOREACH if op.inplace_variant], dtypes=OpDTypes.supported, allowed_dtypes=DTYPES)
    def test_foreach_inplace(self, device, dtype, op):
        check_samples("foreach in-place", op.full_name, dtype, foreach_checks(op, dtype, inplace=True), limit=SAMPLES)


instantiate_device_type_tests(TestForeach, globals(), only_for=(DEVICE,))
