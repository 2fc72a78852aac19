"""Streams and events with CUDA's signatures, over torch.Stream and torch.Event."""

import builtins
import ctypes
from types import TracebackType
from typing import Any, Self

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index
from torch_musa_sim.musa.device import device as _device_context


class Stream(torch.Stream):
    """A queue of work on one card, in order.

    device: the card (default: the current one). priority: 0, or negative for more urgent.
    A stream comes from a pool of 32 per card and priority.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: int) -> Self:
        if kwargs:  # stream_id, device_index, device_type: another face of a stream that exists
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("musa", _get_device_index(device, optional=True)), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """What is launched here from now on waits for `event`."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """What is launched here from now on waits for everything that `stream` has been given."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Records `event` (a new one when None) behind everything this stream has been given, and returns it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    @property
    def priority(self) -> int:
        return _C._stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """(least, greatest) urgency, such as (0, -1)."""
        return _C._stream_priority_range()

    @property
    def musa_stream(self) -> int:
        """The runtime's handle, `musaStream_t`, as an int."""
        return _C._stream_handle(self.stream_id, self.device_index)

    cuda_stream = musa_stream

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.musa_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.device, self.stream_id))

    def __repr__(self) -> str:
        return f"torch.musa.Stream(device={self.device}, stream_id={self.stream_id})"


class ExternalStream(Stream):
    """A stream that the program made itself, with the runtime's musaStreamCreate (say through ctypes or `musart()`).

    stream_ptr: its handle, `musaStream_t`, as an int; 0 is the card's default stream. device: its card (default: the
    current one). Whoever made the stream destroys it, after its last use. Raises RuntimeError when no such stream
    lives on that card.
    """

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: int) -> Self:
        ids = _C._stream_from_handle(stream_ptr, _get_device_index(device, optional=True))
        return super().__new__(cls, **dict(zip(("stream_id", "device_index", "device_type"), ids, strict=True)))


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """The stream behind a runtime handle; see `ExternalStream`."""
    return ExternalStream(data_ptr, device)


_NO_IPC = (
    "events of musa can't be shared between processes: use interprocess=False, and order the processes by a collective "
    "or a barrier"
)


class Event(torch.Event):
    """A point in a stream.

    enable_timing: allow `elapsed_time`. blocking: how the real device would wait; no difference here.
    interprocess: refused, see `ipc_handle`. external: how CUDA's graph capture takes it; no difference here.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> "Event":
        if interprocess:
            raise NotImplementedError(_NO_IPC)
        return super().__new__(cls, torch.device("musa"), enable_timing=enable_timing, blocking=blocking)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Records the event in `stream` (default: the current stream)."""
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream: torch.Stream | None = None) -> None:
        """What is launched on `stream` (default: the current stream) from now on waits for this event."""
        super().wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds of the card's virtual time from this event to `end_event`.

        Raises RuntimeError when one of them isn't recorded, doesn't time, or lies ahead of the host's virtual clock.
        """
        return _elapsed_ms(self, end_event)

    @property
    def musa_event(self) -> int:
        """The runtime's handle, `musaEvent_t`, as an int; 0 before the first `record`."""
        return int(self.event_id)

    cuda_event = musa_event

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.musa_event)

    def ipc_handle(self) -> bytes:
        """Would let another process wait for this event; refused, as events can't be shared between processes yet."""
        raise NotImplementedError(_NO_IPC)

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> "Event":
        """Would open another process's event; refused, see `ipc_handle`."""
        raise NotImplementedError(_NO_IPC)

    def __repr__(self) -> str:
        return f"torch.musa.Event(device={self.device}, event_id={self.event_id})"


def _elapsed_ms(start: torch.Event, end: torch.Event) -> float:
    if end.device.type != "musa":
        raise RuntimeError(f"elapsed_time needs two events of musa, and the second one is of {end.device}")
    # torch.Event's own method takes no object of a subclass as the second event.
    return _C._event_elapsed_ms(start.event_id, end.event_id)


def _from_ids(ids: tuple[int, int, int]) -> Stream:
    stream_id, device_index, device_type = ids
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's stream on a card."""
    return _from_ids(_C._current_stream(_get_device_index(device, optional=True)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The card's default stream."""
    return _from_ids(_C._default_stream(_get_device_index(device, optional=True)))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream and its card current; None does nothing. Prefer the context manager `stream`."""
    if stream is not None:
        _require_musa(stream)
        _C._set_stream(stream.stream_id, stream.device_index)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    _C._set_stream(stream_id, device_index)


def _require_musa(stream: torch.Stream) -> None:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"expected a torch.musa.Stream, but got {stream!r}")
    if stream.device.type != "musa":
        raise ValueError(f"Expected a stream of a musa device, but got one of {stream.device}")


class StreamContext:
    """Makes a stream and its card current, and puts both back; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        if stream is not None:
            _require_musa(stream)
        self.stream = stream
        self._card: _device_context | None = None
        self._before: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._card = _device_context(self.stream.device)
        self._card.__enter__()
        self._before = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(
        self,
        type: builtins.type[BaseException] | None = None,
        value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._card is not None:
            set_stream(self._before)
            self._card.__exit__(type, value, traceback)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: what is launched inside goes to `stream`."""
    return StreamContext(stream)
