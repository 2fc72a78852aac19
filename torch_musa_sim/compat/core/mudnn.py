"""The switches of torch.backends.mudnn."""

from torch_musa_sim.musa.backends.mudnn import MudnnModule, flags, set_flags, version

__all__ = ["MudnnModule", "flags", "set_flags", "version"]
