"""Bad arguments are refused with the error the CPU raises, type and text."""

import re
from collections.abc import Iterator

from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo

from .device import DEVICE, op_db
from .harness import Check, check_samples
from .transfer import Transfer


def error_checks(op: OpInfo, device: str) -> Iterator[Check]:
    """One check per error input of `device`'s list; it passes when the expected error came, and raises otherwise."""
    for error in op.error_inputs(device):

        def check(move: Transfer, error=error):
            sample = error.sample_input
            try:
                op(move(sample.input), *move(sample.args), **move(sample.kwargs))
            except error.error_type as raised:
                if not re.search(error.error_regex, str(raised)):
                    raise AssertionError(f"the text is {str(raised)[:300]!r}, not {error.error_regex!r}") from raised
                return True
            raise AssertionError(f"nothing was raised, expected {error.error_type} {error.error_regex!r}")

        yield check


class TestErrorInputs(TestCase):
    @ops([op for op in op_db if op.error_inputs_func is not None], dtypes=OpDTypes.none)
    def test_error_inputs(self, device, op):
        check_samples("error inputs", op.full_name, None, error_checks(op, "cpu"))


instantiate_device_type_tests(TestErrorInputs, globals(), only_for=(DEVICE,))
