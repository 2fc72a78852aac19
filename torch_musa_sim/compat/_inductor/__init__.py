"""What Inductor knows of musa, under the names of the real package. Nothing here is loaded before it is asked for."""


def _init_inductor_backend_registration() -> None:
    """Loads Inductor, which makes it compile graphs with musa tensors, and gives it the device's words for its code."""
    import importlib

    from torch._inductor.codegen.common import register_device_op_overrides

    from .._inductor.codegen.device_op_overrides import MUSADeviceOpOverrides

    importlib.import_module("torch._inductor.compile_fx")
    register_device_op_overrides("musa", MUSADeviceOpOverrides())


def _prepatch_triton_attrs_descriptor_for_torch25() -> None:
    """Nothing: it mended a class of Triton's for torch 2.5, and this is a later torch."""
