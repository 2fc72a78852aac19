"""Random state of the cards. Each card has a counter-based generator; same seed, same numbers."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import _get_device_index


def _generator(device: Any) -> torch.Generator:
    return _C._default_generator(_get_device_index(device, optional=True))


def default_generators() -> tuple[torch.Generator, ...]:
    """The default generator of each visible card."""
    return tuple(_C._default_generator(index) for index in range(_C._device_count()))


def get_rng_state(device: Any = "musa") -> Tensor:
    """The card's random state: a uint8 cpu tensor of 16 bytes, seed then offset."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The random state of every card."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: Tensor, device: Any = "musa") -> None:
    """Sets the card's random state to what `get_rng_state` returned."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Sets the random state of every card, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current card. Without a visible card it does nothing, as on CUDA."""
    if _C._device_count() > 0:
        _C._default_generator(_C._current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every card."""
    for generator in default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the current card from the operating system."""
    if _C._device_count() > 0:
        _C._default_generator(_C._current_device()).seed()


def seed_all() -> None:
    """Gives every card one and the same seed from the operating system."""
    generators = default_generators()
    if generators:
        chosen = generators[0].seed()
        for generator in generators[1:]:
            generator.manual_seed(chosen)


def initial_seed() -> int:
    """The current card's seed."""
    return _generator("musa").initial_seed()


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "musa",
) -> Iterator[None]:
    """Puts the random state of the cpu and of `devices` (all cards when None) back at the end of the context."""
    if devices is None and device_type == "musa":
        devices = range(_C._device_count())
    with torch.random.fork_rng(devices, enabled, _caller, _devices_kw, device_type):
        yield


def _get_rng_state_offset(device: Any = "musa") -> int:
    """The offset of the card's generator: how many numbers were drawn since it was seeded, in its own steps."""
    return int(get_rng_state(device)[8:].view(torch.int64).item())


def _set_rng_state_offset(offset: int, device: Any = "musa") -> None:
    """Sets the offset of the card's generator; its seed stays."""
    state = get_rng_state(device)
    state[8:].view(torch.int64).fill_(offset)
    set_rng_state(state, device)
