"""The evaluation of a profile."""

from torch_musa_sim.musa.profiler._utils import BasicEvaluation, EventKey, EventMetrics, Interval

__all__ = ["BasicEvaluation", "EventKey", "EventMetrics", "Interval"]
