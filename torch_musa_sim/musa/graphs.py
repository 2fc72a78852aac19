"""`torch.musa.graphs`: capturing graphs, and functions that replay them, under torch.cuda.graphs' names."""

from torch_musa_sim.musa.graph_capture import (
    CUDAGraph,
    MUSAGraph,
    graph,
    is_current_stream_capturing,
)
from torch_musa_sim.musa.graphed_callables import make_graphed_callables
from torch_musa_sim.musa.memory_pools import graph_pool_handle

__all__ = [
    "CUDAGraph",
    "MUSAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]
