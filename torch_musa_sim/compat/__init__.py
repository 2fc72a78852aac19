"""The package `torch_musa`, which accelerate, transformers and others look for: the contents of `torch.musa`."""

import importlib
import sys
from typing import Any

from torch_musa_sim import _real_package

# The torch that the surface follows; clients compare it to decide which shims they need.
__version__ = "2.13.0"
TORCH_MIN_VERSION = TORCH_VERSION = __version__

if _real_package.torch_is_being_imported() and _real_package.find() is not None:
    # These files lie where the real package's were, whose hook torch is about to call. Raising would break `import
    # torch`; torch_musa_sim's own hook says what to do, and a later `import torch_musa` raises.
    def _autoload() -> None:
        sys.modules.pop(__name__, None)
else:
    from torch_musa_sim import musa
    from torch_musa_sim.musa import *  # noqa: F403

    _apply_patches = musa.attributes.set_attributes

    def _autoload() -> None:
        """What an entry point of the real package calls; the import has registered the device already."""
        musa.register_musa_hook()

    for _name in ("amp", "memory", "random", "streams"):
        sys.modules[f"{__name__}.{_name}"] = getattr(musa, _name)


_SUBPACKAGES = ("core", "optim", "profiler", "utils")  # imported by their first use


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    try:
        return getattr(musa, name)
    except (AttributeError, NameError):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
