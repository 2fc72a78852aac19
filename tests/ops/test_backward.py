"""Gradients: float32 backward and float64 double backward give the CPU's numbers."""

from collections.abc import Iterator

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from .compare import tensors_in
from .device import DEVICE, op_db
from .harness import HOST_ARGUMENTS, Check, check_samples, cotangents, differentiable
from .transfer import Transfer

BACKWARD_SAMPLES = 20
DOUBLE_BACKWARD_SAMPLES = 4


def outputs_and_inputs(op: OpInfo, sample, move: Transfer) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Differentiable results of the operator, and the arguments they are differentiated by."""
    first, kwargs = move(sample.input), move(sample.kwargs)
    args = sample.args if op.full_name in HOST_ARGUMENTS else move(sample.args)
    result = op(first, *args, **kwargs)
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    inputs = [t for t in tensors_in([first, list(args), kwargs]) if t.requires_grad]
    return differentiable(result), inputs


def backward_checks(op: OpInfo) -> Iterator[Check]:
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):

        def check(move: Transfer, sample=sample):
            outputs, inputs = outputs_and_inputs(op, sample, move)
            if not outputs:
                return []
            gradients = torch.autograd.grad(outputs, inputs, cotangents(outputs, move), allow_unused=True)
            return [outputs, gradients]

        yield check


def double_backward_checks(op: OpInfo) -> Iterator[Check]:
    for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):

        def check(move: Transfer, sample=sample):
            outputs, inputs = outputs_and_inputs(op, sample, move)
            if not outputs:
                return []
            vectors = [v.requires_grad_() for v in cotangents(outputs, move)]
            first = torch.autograd.grad(outputs, inputs, vectors, create_graph=True, allow_unused=True)
            again = differentiable(first)
            if not again:
                return first
            second = torch.autograd.grad(again, inputs + vectors, cotangents(again, move), allow_unused=True)
            return [first, second]

        yield check


differentiable_ops = [op for op in op_db if torch.float32 in op.backward_dtypes and op.supports_autograd]
twice_differentiable_ops = [
    op for op in op_db if torch.float64 in op.backward_dtypes and op.supports_autograd and op.supports_gradgrad
]


class TestBackward(TestCase):
    @ops(differentiable_ops, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float32,))
    def test_backward(self, device, dtype, op):
        # Strides of a gradient are the sum of layouts that autograd chose; they are compared in the forward test.
        check_samples("backward", op.full_name, dtype, backward_checks(op), limit=BACKWARD_SAMPLES, strides=False)

    @ops(twice_differentiable_ops, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float64,))
    def test_double_backward(self, device, dtype, op):
        checks = double_backward_checks(op)
        check_samples("double backward", op.full_name, dtype, checks, limit=DOUBLE_BACKWARD_SAMPLES, strides=False)


instantiate_device_type_tests(TestBackward, globals(), only_for=(DEVICE,))
