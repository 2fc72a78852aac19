"""What AOTAutograd calls for a compiled graph: the generated code on card memory, or the graph itself in eager mode."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor.output_code import OutputCode

from torch_musa_sim import _C, musa
from torch_musa_sim.compile.graphed import GraphedCode
from torch_musa_sim.compile.retarget import Retargeted, stream_of


def region_name(compile_region_name: str | None, options: dict[str, Any]) -> str:
    """Under which the runs are counted: "inductor::forward_0", or the name that the user gave the region."""
    kind = "inference" if options.get("is_inference") else "backward" if options.get("is_backward") else "forward"
    number = options.get("graph_id")
    return f"inductor::{compile_region_name + '_' if compile_region_name else ''}{kind}_{number}"


class CompiledRegion(OutputCode):
    """Inductor's code for the CPU, run on the memory of a card. Called with a list of inputs that it empties."""

    def __init__(self, compiled: Any, target: Retargeted, name: str, card: torch.device) -> None:
        super().__init__()
        self._boxed_call = True  # torch's wrappers copy it from the instance
        self._compiled = compiled  # owns what the code needs
        self._flops = target.flops
        code = getattr(compiled, "current_callable", None) or compiled
        self.written: list[int] = sorted(getattr(compiled, "mutated_input_idxs", ()))
        self._on_card = _C._CompiledRegion(
            code, name, card.index, target.results, self.written, target.compute, target.synchronizes
        ).run
        self._graphed: GraphedCode | None = None

    def __call__(self, inputs: Sequence[Any]) -> Any:
        if self._graphed is not None:
            return self._graphed(list(inputs) if not isinstance(inputs, list) else inputs)
        return self._on_card(inputs, self._flops(inputs))

    def run(self, inputs: list[Any]) -> Sequence[Any]:
        """The code itself, as often as it is called."""
        return self._on_card(inputs, self._flops(inputs))

    def replay_by(self, graphed: GraphedCode) -> None:
        """From now on calls go to `graphed`, which captures `run`."""
        self._graphed = graphed


class EagerRegion(OutputCode):
    """The graph as it was traced, operator by operator, each on its stream: for what can't be compiled."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__()
        self._boxed_call = True  # torch's wrappers copy it from the instance
        from torch.fx._lazy_graph_module import _LazyGraphModule

        _LazyGraphModule.force_recompile(gm)
        on_streams = any(stream_of(node) is not None for node in gm.graph.nodes)
        self._execute: Any = _OnStreams(gm).run if on_streams else gm

    def __call__(self, inputs: Sequence[Any]) -> Any:
        arguments = list(inputs)
        if isinstance(inputs, list):
            inputs.clear()
        return self._execute(*arguments)


class _OnStreams(fx.Interpreter):
    """Runs the nodes that the program has put on a stream there; the graph itself only notes it."""

    def run_node(self, n: fx.Node) -> Any:
        from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index

        index = stream_of(n)
        with musa.stream(None if index is None else get_external_object_by_index(index)):
            return super().run_node(n)
