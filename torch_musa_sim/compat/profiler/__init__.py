"""Profiling as torch.cuda.profiler has it, and analyses of a finished profile."""

from torch_musa_sim.musa.profiler import init, profile, set_profiler_attributes, start, stop

__all__ = ["init", "profile", "set_profiler_attributes", "start", "stop"]
