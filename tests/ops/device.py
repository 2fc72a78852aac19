"""The device under test, and the operator database with its dtype lists set to the contract."""

import os

from torch.testing._internal.common_device_type import PrivateUse1TestBase
from torch.testing._internal.common_methods_invocations import op_db

from .contract import load

__all__ = ["CPU_DTYPES", "DEVICE", "op_db"]

# "cpu" checks the harness against itself; every comparison must then hold.
DEVICE = os.environ.get("TORCH_MUSA_SIM_TEST_DEVICE", "musa")

# What torch's CPU kernels take, kept before the lists below are overwritten.
CPU_DTYPES = {op.full_name: frozenset(op.dtypes) for op in op_db}


def apply_contract() -> None:
    """Makes `op.supported_dtypes(DEVICE)` the contract. Without it torch's harness would only test the CPU's list."""
    contract = load()
    for op in op_db:
        row = contract[(op.name, op.variant_test_name)]
        forward = set(op.dtypes if row.cpu_only else row.forward)
        if DEVICE == "cpu":
            forward &= set(op.dtypes)
        op.dtypes = op.dtypesIf[DEVICE] = forward
        op.backward_dtypes = set(row.backward)


apply_contract()
# Operators marked "only on CUDA" are in the contract, so they run here as well.
PrivateUse1TestBase.bypass_device_restrictions = True
