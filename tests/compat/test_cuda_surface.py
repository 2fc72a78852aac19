"""Every public name of torch.cuda is on torch.musa, but those that docs/compat.md lists."""

import importlib
import types

import pytest
import torch

# Names of other vendors' libraries and machine code, and what torch keeps for itself.
MEANINGLESS = {
    "DEVICE_REQUIREMENT",
    "GreenContext",
    "NewType",
    "Optional",
    "PYTORCH_RELEASES_CODE_CC",
    "TYPE_CHECKING",
    "Any",
    "Callable",
    "cast",
    "classproperty",
    "cudaStatus",
    "gds",
    "green_contexts",
    "jiterator",
    "lru_cache",
    "nccl",
    "sparse",
    "tunable",
}


def names_here(name: str) -> set[str]:
    """How torch.musa may spell a name of torch.cuda."""
    return {name, name.replace("CUDA", "MUSA").replace("Cuda", "Musa").replace("cuda", "musa")}


def missing(theirs: types.ModuleType, ours: types.ModuleType) -> set[str]:
    listed = set(getattr(theirs, "__all__", ())) | {name for name in dir(theirs) if not name.startswith("_")}
    own = {name for name in listed if not isinstance(getattr(theirs, name, None), types.ModuleType)} | {
        name for name in listed if getattr(getattr(theirs, name, None), "__name__", "").startswith("torch.cuda.")
    }
    return {name for name in own if not any(hasattr(ours, spelling) for spelling in names_here(name))} - MEANINGLESS


def test_every_public_name_of_torch_cuda_is_there():
    assert not missing(torch.cuda, torch.musa)


SUBMODULES = (
    *("amp", "amp.autocast_mode", "amp.common", "amp.grad_scaler", "comm", "graphs", "memory", "nvtx", "profiler"),
    *("random", "streams"),
)


@pytest.mark.parametrize("module", SUBMODULES)
def test_every_name_of_a_submodule_is_there(module):
    theirs, ours = importlib.import_module(f"torch.cuda.{module}"), importlib.import_module(f"torch.musa.{module}")
    names = getattr(theirs, "__all__", ())
    assert not {name for name in names if not any(hasattr(ours, spelling) for spelling in names_here(name))}
