"""The interface that Dynamo and Inductor use for musa."""

from torch_musa_sim.compile.device_interface import MusaInterface

__all__ = ["MusaInterface"]
