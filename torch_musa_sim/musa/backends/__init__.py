"""`torch.backends.musa` and `torch.backends.mudnn`."""

import sys

import torch

from torch_musa_sim.musa.backends import mudnn, musa


def install() -> None:
    """Makes both reachable as attributes of torch.backends and by import."""
    for name, module in (("musa", musa), ("mudnn", mudnn.module)):
        setattr(torch.backends, name, module)
        sys.modules[f"torch.backends.{name}"] = module
