"""C++ that generated programs begin with to load and launch kernels on the real stack."""

from ..._inductor.codegen.device_op_overrides import MUSADeviceOpOverrides


def musa_kernel_header() -> str:
    """The includes of guards, streams and tensors on musa."""
    return str(MUSADeviceOpOverrides().kernel_header())


def musa_kernel_driver() -> str:
    """Functions that load a kernel's binary and launch it through the driver."""
    return str(MUSADeviceOpOverrides().kernel_driver())
