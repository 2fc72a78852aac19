"""Inputs that are made on the device itself (factories, random fills) work like inputs carried to it."""

from collections.abc import Iterator

import torch
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from .device import DEVICE, op_db
from .harness import Check, call, check_samples
from .transfer import Transfer

SAMPLES = 3


def on_device_checks(op: OpInfo, device: str, dtype: torch.dtype) -> Iterator[Check]:
    for sample in op.sample_inputs(device, dtype):

        def check(move: Transfer, sample=sample):
            with torch.no_grad():
                return call(op, sample, move)

        yield check


class TestSamplesOnDevice(TestCase):
    @ops(op_db, dtypes=OpDTypes.any_one)
    def test_samples_on_device(self, device, dtype, op):
        checks = on_device_checks(op, device, dtype)
        check_samples("samples on device", op.full_name, dtype, checks, limit=SAMPLES, strides=False)


instantiate_device_type_tests(TestSamplesOnDevice, globals(), only_for=(DEVICE,))
