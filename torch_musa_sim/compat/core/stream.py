"""Streams and events."""

from torch_musa_sim.musa.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    _set_stream_by_id,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "_set_stream_by_id",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]
