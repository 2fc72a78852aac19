"""Graphs: work that is recorded once and repeated without Python."""

from .graphs import MUSAGraph, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables

__all__ = ["MUSAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]
