"""The modules for quantisation-aware training."""

from torch_musa_sim.ao.qat import ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvBnSiLU2d", "ConvSiLU2d"]
