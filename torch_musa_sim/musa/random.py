"""Random state of the cards. Each card has a counter-based generator; same seed, same numbers."""

from collections.abc import Iterable
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
