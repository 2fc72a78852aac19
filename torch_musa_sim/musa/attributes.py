"""What is added to classes and functions of torch itself, beyond the methods that torch generates for a backend.

docs/compat.md says for each name whether it follows torch_musa or CUDA, and why.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa import backends, functional, peer_copies, serialization
from torch_musa_sim.musa.initialization import _lazy_call, _lazy_init
from torch_musa_sim.musa.streams import _elapsed_ms

_done = False


def set_attributes() -> None:
    """Adds everything; the import has done it, and a second call does nothing."""
    global _done
    if _done:
        return
    _set_tensor_attributes()
    _set_storage_attributes()
    _set_event_attributes()
    _set_autocast_functions()
    torch.random.fork_rng = _fork_rng_of(torch.random.fork_rng)
    functional.install()
    peer_copies.install()
    backends.install()
    serialization.register_deserialization()
    _done = True


def register_musa_hook() -> None:
    """Registers the device's hooks with torch; the import has done it, and a second call does nothing."""
    _C._register()


def overwrite_cuda_api() -> None:
    """Lets torch.cuda._lazy_init and torch.cuda._lazy_call serve musa.

    torch_musa does this when it is imported. Here a program has to ask for it: in a torch without CUDA, the error text
    of a stray device="cuda" comes from there.
    """
    torch.cuda._lazy_init = _lazy_init
    torch.cuda._lazy_call = _lazy_call


def _set_tensor_attributes() -> None:
    # torch's own methods take an int as a card and pin for the accelerator at hand; torch_musa replaces them and keeps
    # them under these names.
    torch.Tensor.orig_to = torch.Tensor.to  # type: ignore[attr-defined]
    torch.Tensor.orig_pin_memory = torch.Tensor.pin_memory  # type: ignore[attr-defined]
    torch.Tensor.orig_is_pinned = torch.Tensor.is_pinned  # type: ignore[attr-defined]


def _edit_device(self: torch.UntypedStorage, device: Any) -> torch.UntypedStorage:
    """The storage as one of `device`, which must be where its memory lies.

    torch_musa relabels memory that host and card share; the simulated cards have memory of their own. Raises
    RuntimeError for another device.
    """
    wanted = torch.device(device) if not isinstance(device, int) else torch.device("musa", device)
    if wanted.type == "musa" and wanted.index is None:
        wanted = torch.device("musa", torch.accelerator.current_device_index())
    if self.device != wanted:
        raise RuntimeError(
            f"edit_device can't make memory of {self.device} memory of {wanted}, as host and card share none; copy it "
            f"with storage.to(device={str(wanted)!r})"
        )
    return self


def _set_storage_attributes() -> None:
    torch.UntypedStorage.edit_device = _edit_device  # type: ignore[attr-defined]


def _set_event_attributes() -> None:
    original = torch.Event.elapsed_time

    def elapsed_time(self: torch.Event, other: torch.Event) -> float:
        """Milliseconds between two recorded events that time."""
        return _elapsed_ms(self, other) if self.device.type == "musa" else original(self, other)

    _C._set_event_elapsed_time(elapsed_time)


def _set_autocast_functions() -> None:
    is_enabled, set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled

    def is_autocast_enabled(*arguments: Any, **keywords: Any) -> bool:
        """Whether autocast is on for a device type; without one: for musa, where there is no CUDA."""
        if not arguments and not keywords and not torch.cuda.is_available():
            return is_enabled("musa")
        return is_enabled(*arguments, **keywords)

    def set_autocast_enabled(*arguments: Any, **keywords: Any) -> None:
        """Switches autocast for a device type; with the switch alone: for musa, where there is no CUDA."""
        if len(arguments) == 1 and not keywords and not torch.cuda.is_available():
            return set_enabled("musa", arguments[0])
        return set_enabled(*arguments, **keywords)

    torch.is_autocast_enabled = is_autocast_enabled
    torch.set_autocast_enabled = set_autocast_enabled


def _fork_rng_of(original: Any) -> Any:
    @contextlib.contextmanager
    def fork_rng(
        devices: Iterable[Any] | None = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str | None = None,
    ) -> Iterator[None]:
        """torch.random.fork_rng, whose device type is "musa" where none is given and there is no CUDA."""
        if device_type is None:
            device_type = "cuda" if torch.cuda.is_available() else "musa"
            if devices is None and device_type == "musa":
                devices = range(_C._device_count())
        with original(devices, enabled, _caller, _devices_kw, device_type):
            yield

    return fork_rng
