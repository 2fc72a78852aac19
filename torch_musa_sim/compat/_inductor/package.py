"""Packages of AOTInductor."""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.package import load_package as _load_package

from .._refused import NO_AOT, refused


def load_package(path: str, device: str) -> Callable[..., Any]:
    """A package as a function: torch's loader for "cpu"; raises NotImplementedError for musa."""
    if torch.device(device).type == "musa":
        raise NotImplementedError(f"load_package: {NO_AOT}")
    return _load_package(path)


@refused(NO_AOT)
def _apply_package_patch() -> None:
    """Would teach torch to make and load packages of a card's code."""
