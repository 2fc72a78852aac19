"""Finds where a program waits for a card without saying so."""

from torch_musa_sim import _C
from torch_musa_sim.musa.initialization import _lazy_init

_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Says what happens when an operation makes the host wait for a card.

    debug_mode: "default" or 0 nothing, "warn" or 1 a UserWarning, "error" or 2 a RuntimeError. Operations that wait by
    their meaning count: reading a value (`item`), results whose size depends on values (`nonzero`, masks), copies to
    and from the host that aren't non_blocking, `Stream.synchronize`. `torch.musa.synchronize` and
    `Event.synchronize` don't, as on CUDA.

    Raises RuntimeError for any other value.
    """
    _lazy_init()
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected one of 0, 1, 2, but got {debug_mode}")
    _C._set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """The mode in force: 0, 1 or 2 (see `set_sync_debug_mode`)."""
    _lazy_init()
    return _C._sync_debug_mode()
