"""Names of the real stack that stand for nothing a simulated card has; docs/compat.md lists them."""

import warnings

from torch_musa_sim import _C
from torch_musa_sim.musa.initialization import _lazy_init


def current_blas_handle() -> int:
    """A number that stands for the current card's muBLAS handle.

    It is the same at every call for one card and stream, as on the real stack, and nothing here takes it: matrix
    products run without such a library.
    """
    return _handle(0)


def current_blaslt_handle() -> int:
    """As `current_blas_handle`, for muBLASLt."""
    return _handle(1)


def current_solver_handle() -> int:
    """As `current_blas_handle`, for muSOLVER."""
    return _handle(2)


def _handle(kind: int) -> int:
    _lazy_init()
    stream_id, device, _ = _C._current_stream(_C._current_device())
    return _C._stream_handle(stream_id, device) + 1 + kind  # no address, as a handle has at least 4-byte alignment


def update_musa_graph_with_profile() -> None:
    """Nothing: on the real stack it shows the graphs captured so far to a profiler, which sees them here anyway."""


def parseEnvForUMM() -> None:
    """Looks whether PYTORCH_MUSA_ALLOC_CONF asks for memory that host and card share, and warns that there is none.

    On the real stack the option `cpu:unified` lets a system whose card shares the host's memory allocate CPU tensors
    for both. The simulated cards have memory of their own, and CPU tensors stay as they are.
    """
    settings = {entry["name"]: entry["value"] for entry in _C._settings()}
    if "cpu:unified" in [option.strip() for option in str(settings["PYTORCH_MUSA_ALLOC_CONF"]).split(",")]:
        warnings.warn(
            "PYTORCH_MUSA_ALLOC_CONF has cpu:unified, but the simulated cards share no memory with the host",
            stacklevel=2,
        )
