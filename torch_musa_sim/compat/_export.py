"""Loading of what torch.export compiled ahead of time."""

from collections.abc import Callable
from typing import Any

import torch


def aot_load(so_path: str, device: str) -> Callable[..., Any]:
    """A compiled library as a function: torch's loader for "cpu"; raises NotImplementedError for musa."""
    from ._refused import NO_AOT

    if torch.device(device).type == "musa":
        raise NotImplementedError(f"aot_load: {NO_AOT}")
    return torch._export.aot_load(so_path, device)
