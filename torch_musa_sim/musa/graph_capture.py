"""Graphs: a sequence of kernels that is captured once and launched as one, with CUDA's names and rules."""

import gc
import weakref
from types import TracebackType
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa.device import synchronize
from torch_musa_sim.musa.memory import empty_cache
from torch_musa_sim.musa.streams import Stream, StreamContext
from torch_musa_sim.musa.streams import stream as _use_stream

PoolHandle = tuple[int, int]


def is_current_stream_capturing() -> bool:
    """Whether a capture is under way on the current stream. Doesn't initialise the device."""
    return _C._is_current_stream_capturing()


class MUSAGraph(_C._MUSAGraph):
    """A captured sequence of kernels.

    keep_graph: True leaves instantiation to `instantiate` or the first `replay`, and keeps the graph readable
    (`raw_musa_graph`, `get_graph_data`, `debug_dump`) without debug mode.
    """

    _latest: "weakref.ref[MUSAGraph] | None" = None

    def capture_begin(
        self, pool: PoolHandle | None = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Begins to capture what the current stream is given, which must not be the default stream.

        pool: memory shared with other graphs, from `graph_pool_handle()` or another graph's `pool()`.
        capture_error_mode: "global", "thread_local" or "relaxed"; in the first two only the thread that began may end
        the capture. check_input_liveness: replays raise when a tensor from outside was freed, moved or resized.
        Raises RuntimeError on the default stream, and when this object holds a graph already.
        """
        self.check_inputs(check_input_liveness)
        super().capture_begin(pool, capture_error_mode)

    def capture_end(self) -> None:
        """Ends the capture, on the stream it began on. Raises when something inside it was refused."""
        super().capture_end()
        MUSAGraph._latest = weakref.ref(self)

    def instantiate(self) -> None:
        """Makes the graph ready to be replayed; without keep_graph `capture_end` has done so."""
        super().instantiate()

    def replay(self) -> None:
        """Runs the captured kernels on the current stream, on the memory they were captured with."""
        super().replay()

    def reset(self) -> None:
        """Deletes the captured graph and gives its memory back. The object can capture again."""
        super().reset()

    def reinstantiate_graph(self) -> None:
        """Makes the executable anew from the captured graph, as the real stack does after profiling."""
        super().instantiate()

    def pool(self) -> PoolHandle:
        """Token of this graph's memory pool."""
        return super().pool()

    def enable_debug_mode(self) -> None:
        """Lets `debug_dump` write, and each replay check that the graph's inputs are where the capture found them."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph in Graphviz's language to a file; needs `enable_debug_mode()` or keep_graph."""
        super().debug_dump(str(debug_path))

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Accepts a musa generator that captured operators draw from; each replay goes on in its sequence anyway."""
        super().register_generator_state(generator)

    def raw_musa_graph(self) -> int:
        """Identifies the captured graph. Needs keep_graph."""
        return self.raw_graph()

    def raw_musa_graph_exec(self) -> int:
        """Identifies the instantiated graph."""
        return self.raw_executable()

    raw_cuda_graph = raw_musa_graph
    raw_cuda_graph_exec = raw_musa_graph_exec

    def get_graph_data(self) -> dict[str, Any]:
        """The nodes and their dependencies: {"exec_graph_id": int, "nodes": [...]}, each node a dict with index,
        node_type, graph_id, node_id, kernel_name, dependencies and dependents (indices). Needs keep_graph and
        instantiate().
        """
        self.raw_graph()
        executable = self.raw_executable()
        nodes: list[dict[str, Any]] = []
        for node in self.nodes():
            nodes.append(
                {
                    "index": node["index"],
                    "node_type": "memcpy" if node["kernel_name"] == "aten::_copy_from" else "kernel",
                    "tools_id": (executable << 32) | node["index"],
                    "graph_id": executable,
                    "node_id": node["index"],
                    "kernel_name": node["kernel_name"],
                    "dependencies": list(node["dependencies"]),
                    "dependents": [],
                }
            )
        for entry in nodes:
            for before in entry["dependencies"]:
                nodes[before]["dependents"].append(entry["index"])
        return {"exec_graph_id": executable, "nodes": nodes}

    @classmethod
    def get_latest_instance(cls) -> "MUSAGraph | None":
        """The graph whose capture ended last; None before the first, or when it was deleted."""
        return MUSAGraph._latest() if MUSAGraph._latest is not None else None


CUDAGraph = MUSAGraph


class graph:
    """Captures what its `with` block does on the device into a graph.

    musa_graph: the MUSAGraph that is filled. pool, capture_error_mode, check_input_liveness: as for
    `MUSAGraph.capture_begin`. stream: captured and current inside the block (default: a stream kept for that).
    enable_annotations: refused, there is no driver tool that would read them.
    """

    default_capture_stream: torch.Stream | None = None

    def __init__(
        self,
        musa_graph: MUSAGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise NotImplementedError(
                "torch.musa.graph: enable_annotations needs a driver tool that a simulated card lacks; leave it False "
                "and use MUSAGraph.debug_dump() or get_graph_data()"
            )
        if stream is None:
            if self.__class__.default_capture_stream is None:
                self.__class__.default_capture_stream = Stream()
            stream = self.__class__.default_capture_stream
        self.musa_graph = musa_graph
        self.pool = pool
        self.capture_stream = stream
        self.stream_ctx: StreamContext = _use_stream(stream)
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        torch.accelerator.empty_host_cache()
        self.stream_ctx.__enter__()
        try:
            self.musa_graph.capture_begin(self.pool, self.capture_error_mode, self.check_input_liveness)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.musa_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(exc_type, exc_value, traceback)
