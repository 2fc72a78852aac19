"""The interface that Dynamo and Inductor use for musa."""

import torch._dynamo.device_interface  # noqa: F401 - goes first: its import registers our whole module

from torch_musa_sim.compile.device_interface import MusaInterface

__all__ = ["MusaInterface"]
