"""Checks of graphs that are to be recorded: torch's for CUDA graphs, asking for musa.

The classes that tell functions and inputs apart are torch's own, so that both kinds of graphs understand each other's.
Messages go to torch's log "cudagraphs".
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import cudagraph_utils as _torch

from torch_musa_sim.compile import tree_memory  # noqa: F401 - torch's text calls it

from .. import _renamed


def __getattr__(name: str) -> Any:  # for type checkers: the names come from torch's module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_renamed.load(
    globals(),
    "torch._inductor.cudagraph_utils",
    {
        'if self.name == "CudagraphManagedIdxMismatch"': 'if self.name == "MusagraphManagedIdxMismatch"',
        "import is_using_musagraph_partition": "import is_using_cudagraph_partition as is_using_musagraph_partition",
        "from torch._inductor.compile_fx import musagraphify": (
            "from torch_musa._inductor.musagraph_trees import musagraphify"
        ),
    },
)
for _name in ("BoxedDeviceIndex", "FunctionID", "PlaceholderInfo", "WrappedFunction"):
    globals()[_name] = getattr(_torch, _name)
perf_hint_log = torch._logging.getArtifactLogger(__name__, "perf_hints")

_check_lists = globals()["check_for_mutation_ignore_musa_graph_managed_tensor"]


def check_for_mutation_ignore_musa_graph_managed_tensor(
    gm: torch.fx.GraphModule, compiled_graph: Any, static_input_idxs: Sequence[int]
) -> str | None:
    """Why a graph that writes inputs can't be recorded, in words; None when it writes none but the static ones.

    compiled_graph: Inductor's result, which says what is written (`mutated_inputs`, `mutated_input_idxs`).
    """
    reason: str | None = _check_lists(
        gm, compiled_graph.mutated_inputs, compiled_graph.mutated_input_idxs, static_input_idxs
    )
    return reason
