"""The MUSA runtime from Python: `musart()` and the errors of its calls."""

from types import ModuleType
from typing import Any

from torch_musa_sim import _C
from torch_musa_sim.musa.initialization import _lazy_init


def musart() -> ModuleType:
    """The runtime's calls, with the conventions of torch.cuda.cudart(): addresses are ints, statuses `musaError`.

    Initialises the device.
    """
    _lazy_init()
    return _C._musart


cudart = musart


class MusaError(RuntimeError):
    """A runtime call failed; `code` is its status, a `musart().musaError` or an int."""

    def __init__(self, code: Any) -> None:
        super().__init__(f"{_C._musart.musaGetErrorString(code)} ({int(code)})")


def check_error(res: Any) -> None:
    """Raises MusaError when a runtime call's status isn't success."""
    if int(res) != int(_C._musart.musaError.success):
        raise MusaError(res)


def ipc_collect() -> None:
    """Frees memory that other processes were given and have released; none can be given to them, so there is none."""
    _lazy_init()
