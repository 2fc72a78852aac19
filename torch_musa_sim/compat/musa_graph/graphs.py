"""Capture and replay."""

from torch_musa_sim.musa.graphs import (
    MUSAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_musa_sim.musa.no_meaning import update_musa_graph_with_profile

__all__ = [
    "MUSAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "update_musa_graph_with_profile",
]
