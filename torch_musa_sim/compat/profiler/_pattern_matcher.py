"""Patterns of needless work in a profile."""

from torch_musa_sim.musa.profiler._pattern_matcher import (
    ExtraMUSACopyPattern,
    FP32MatMulPattern,
    MatMulDimInFP16Pattern,
    Pattern,
    report_all_anti_patterns,
)

__all__ = [
    "ExtraMUSACopyPattern",
    "FP32MatMulPattern",
    "MatMulDimInFP16Pattern",
    "Pattern",
    "report_all_anti_patterns",
]
