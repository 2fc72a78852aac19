"""Lowering of programs that were quantised after torch.export, for models on musa too."""

from torch_musa_sim.ao.lowering import apply_lowering_patch, lower_pt2e_quantized_to_x86

__all__ = ["apply_lowering_patch", "lower_pt2e_quantized_to_x86"]
