"""The modules with int8 weights."""

from torch_musa_sim.ao.quantized import ConvAddSiLU2d, ConvSiLU2d

__all__ = ["ConvAddSiLU2d", "ConvSiLU2d"]
