"""The module of convolution and SiLU with an int8 weight."""

from torch_musa_sim.ao.quantized import ConvSiLU2d, _reverse_repeat_padding

__all__ = ["ConvSiLU2d", "_reverse_repeat_padding"]
