"""How busy the cards were while the host worked: torch's evaluation of a profile, for musa."""

from bisect import bisect_right
from typing import Any

from torch.autograd import DeviceType
from torch.profiler._utils import BasicEvaluation as _BasicEvaluation
from torch.profiler._utils import EventKey, EventMetrics, Interval

__all__ = ["BasicEvaluation", "EventKey", "EventMetrics", "Interval"]

_LAUNCHES = ("musaLaunchKernel", "musaMemcpyAsync", "musaMemsetAsync")


class BasicEvaluation(_BasicEvaluation):
    """Self time, queue depth and idle time of each event of a finished `torch.autograd.profiler.profile`.

    A torch.profiler.profile has one in its attribute `profiler`. The depth of the queue at a moment is the number of
    launches made by then whose work hasn't begun. Calls are placed by wall time and work by virtual time, as the trace
    shows them: where the host, being the simulator, is slower than the card, the queue is empty and the card idle.
    """

    def compute_queue_depth(self) -> list[Interval]:
        """The depth of the queue over each launch and each piece of work, in order of their starts."""
        if self.profile.kineto_results is None:
            raise RuntimeError("the profile isn't finished: evaluate it after its `with` block")
        events: list[Any] = list(self.profile.kineto_results.events())
        launches = sorted((e for e in events if e.name() in _LAUNCHES), key=lambda e: e.start_ns())
        work = sorted(
            (e for e in events if e.device_type() == DeviceType.PrivateUse1 and not e.is_user_annotation()),
            key=lambda e: e.start_ns(),
        )
        self.cuda_events = sorted(launches + work, key=lambda e: e.start_ns())
        launched = [e.start_ns() for e in launches]
        begun = [e.start_ns() for e in work]

        def depth(moment: int) -> int:
            return max(bisect_right(launched, moment) - bisect_right(begun, moment), 0)

        for key, metrics in self.metrics.items():
            metrics.queue_depth = depth(key.event.start_time_ns)
        return [Interval(e.start_ns(), e.start_ns() + e.duration_ns(), depth(e.start_ns())) for e in self.cuda_events]
