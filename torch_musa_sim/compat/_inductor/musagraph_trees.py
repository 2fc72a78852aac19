"""Trees of musa graphs that share one pool of memory: torch's for CUDA graphs, on musa.

`torch.compiler.cudagraph_mark_step_begin` marks steps of both. Messages go to torch's log "cudagraphs", options are
those of torch._inductor.config.triton.cudagraph*.
"""

from collections.abc import Sequence
from typing import Any

from torch._inductor import cudagraph_trees as _torch

from torch_musa_sim.compile import tree_memory

from .. import _renamed


def __getattr__(name: str) -> Any:  # for type checkers: the names come from torch's module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_renamed.load(
    globals(),
    "torch._inductor.cudagraph_trees",
    {
        **{
            f"torch._C.{name}": f"tree_memory.{name}"
            for name in (
                "_construct_MUSA_Tensor_From_Storage_And_Metadata",
                "_free_And_Remove_DeleterFn",
                "_has_Standard_Deleter",
                "_set_storage_access_error_msg",
                "_set_storage_data_ptr_access_error_msg",
                "_tensors_data_ptrs_at_indices_equal",
            )
        },
        "torch._C._cudnn_set_conv_benchmark_empty_cache": "tree_memory._set_conv_benchmark_empty_cache",
        # Both kinds of trees keep their managers with the thread.
        "tree_manager_containers": "musa_tree_manager_containers",
        "tree_manager_locks": "musa_tree_manager_locks",
        "if torch.backends.musa.is_built():": "if True:",
        "    from torch._C import (\n        _musa_MUSAAllocator_AllocatorState as AllocatorState,\n": (
            "    from torch_musa_sim.compile.tree_memory import AllocatorState\n    from torch._C import (\n"
        ),
        ".MUSAGRAPH_RECORDING": ".CUDAGRAPH_RECORDING",  # an event of torch's own log
        # Control flow that a value on the card decides: CUDA records both ways, here a capture refuses it.
        "    MUSAGraphCaptureControlFlowOpDispatchMode,\n": "",
        "ControlFlowOpWarmupDispatchMode()": "contextlib.nullcontext()",
        "MUSAGraphCaptureControlFlowOpDispatchMode()": "contextlib.nullcontext()",
    },
)
MarkStepBox = _torch.MarkStepBox


# The names and defaults of parameters that the real package has.
def _init_node(
    self: Any,
    wrapped_function: Any,
    graph_id: Any,
    parent: Any,
    inputs: list[Any],
    musa_graphs_pool: tuple[int, int],
    device_index: int,
    stack_traces: Any,
    stream: Any,
    mode: Any = None,
    compile_id: Any = None,
) -> None:
    """Records `wrapped_function` on `inputs` after `parent`, in the pool that the tree shares."""
    with tree_memory.memory_kept_as_it_is():
        _node_init(
            self,
            wrapped_function,
            graph_id,
            parent,
            inputs,
            musa_graphs_pool,
            device_index,
            stack_traces,
            stream,
            mode,
            compile_id,
        )


def _init_warmup(
    self: Any,
    wrapped_function: Any,
    parent: Any,
    musa_graphs_pool: tuple[int, int],
    existing_musa_graph: Any,
    device_index: int,
    stack_traces: Any,
    stream: Any,
    already_warm: bool,
    graph_id: Any,
) -> None:
    """Will run `wrapped_function` without recording it, with memory of the tree's pool."""
    _warmup_init(
        self,
        wrapped_function,
        parent,
        musa_graphs_pool,
        existing_musa_graph,
        device_index,
        stack_traces,
        stream,
        already_warm,
        graph_id,
    )


def _add_function(
    self: Any,
    model: Any,
    inputs: list[Any],
    static_input_idxs: Sequence[int],
    stack_traces: Any,
    mode: Any,
    constants: tuple[Any, ...],
    placeholders: tuple[Any, ...],
    mutated_input_idxs: tuple[int, ...],
    compile_id: Any = None,
) -> tuple[Any, Any]:
    """The function as one of the tree's, and the results of its first run, on `inputs`."""
    added: tuple[Any, Any] = _manager_add(
        self,
        model,
        inputs,
        static_input_idxs,
        stack_traces,
        mode,
        constants,
        placeholders,
        mutated_input_idxs,
        compile_id,
    )
    return added


_get_obj = globals()["get_obj"]


def get_obj(_local: Any, attr_name: str) -> Any:
    """What the thread keeps under a name, also in autograd's threads, which inherit it."""
    return _get_obj(_local, attr_name)


_node, _warmup, _manager = (globals()[n] for n in ("MUSAGraphNode", "MUSAWarmupNode", "MUSAGraphTreeManager"))
_node_init, _node.__init__ = _node.__init__, _init_node
_warmup_init, _warmup.__init__ = _warmup.__init__, _init_warmup
_manager_add, _manager.add_function = _manager.add_function, _add_function
