"""Loading of an extension module of this package."""

import importlib
from collections.abc import Sequence
from types import ModuleType


def load_ext(name: str, funcs: Sequence[str] | None = None) -> ModuleType:
    """The module `torch_musa.<name>`, which must have every function in `funcs`.

    Raises ImportError for an unknown module, AttributeError for missing functions.
    """
    package = __package__.rpartition(".")[0]
    module = importlib.import_module(f"{package}.{name}")
    missing = [function for function in funcs or () if not hasattr(module, function)]
    if missing:
        raise AttributeError(f"extension {module.__name__} has no function {', '.join(map(repr, missing))}")
    return module
