"""The course of a program on the cards: what `run --report` records and draws."""

from dataclasses import dataclass
from typing import Any

import numpy as np

# As TraceEvent in csrc/backend/trace/run_trace.h.
_EVENT = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("bytes", "<f8"),
        ("allocated", "<i8"),
        ("stream", "<i8"),
        ("name", "<i4"),
        ("device", "<i2"),
        ("kind", "u1"),
        ("unused", "u1"),
    ]
)
KERNEL, COPY, FILL = 0, 1, 2  # musart::ActivityKind; what follows is a wait of the host


@dataclass(frozen=True)
class CardSummary:
    """What a card was and held. Bytes."""

    index: int
    name: str
    capacity: int
    peak_allocated: int
    peak_reserved: int


@dataclass(frozen=True)
class Operator:
    """One operator's totals, times in virtual nanoseconds."""

    name: str
    kernel: str
    calls: int
    bytes: float
    device_ns: int


@dataclass(frozen=True)
class Recording:
    """`events` is a structured array (see _EVENT); `names[event["name"]]` is the operator. Times: virtual ns."""

    names: list[str]
    events: Any
    dropped: int
    began_ns: int
    ended_ns: int
    cards: list[CardSummary]
    operators: list[Operator]

    def work(self) -> Any:
        """Events that occupied a stream, without the host's waits."""
        return self.events[self.events["kind"] <= FILL]


class Recorder:
    """Records from its creation to `finish`. The device must be registered."""

    def __init__(self) -> None:
        from torch_musa_sim import _C

        self._began = _C._host_clock_ns()
        _C._run_trace_start()

    def finish(self) -> Recording:
        """Stops and returns what was recorded."""
        from torch_musa_sim import _C, musa

        _C._run_trace_stop()
        taken = _C._run_trace_take()
        events = np.frombuffer(taken["events"], dtype=_EVENT)
        ended = max(_C._host_clock_ns(), int(events["end"].max()) if len(events) else 0)
        operators = [
            Operator(op.name, "bridged" if op.bridged else "native", op.calls, op.bytes, op.device_ns)
            for op in musa.op_statistics()
        ]
        operators.sort(key=lambda op: (-op.device_ns, op.name))
        cards = [_summary(index) for index in sorted(set(events["device"].tolist()))]
        return Recording(taken["names"], events, taken["dropped"], self._began, ended, cards, operators)


def _summary(index: int) -> CardSummary:
    from torch_musa_sim import musa

    properties = musa.get_device_properties(index)
    return CardSummary(
        index,
        properties.name,
        properties.total_memory,
        musa.max_memory_allocated(index),
        musa.max_memory_reserved(index),
    )
