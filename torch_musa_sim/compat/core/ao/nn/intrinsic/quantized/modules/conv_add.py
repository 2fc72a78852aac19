"""The module of convolution, sum and SiLU with an int8 weight."""

from torch_musa_sim.ao.quantized import ConvAddSiLU2d, _reverse_repeat_padding

__all__ = ["ConvAddSiLU2d", "_reverse_repeat_padding"]
