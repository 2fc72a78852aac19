"""The backend "musagraphs": forward and backward graphs as they were traced, each replayed as a musa graph."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx


def musagraphs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
    """Dynamo backend: captures the traced operators without compiling them. See `GraphedCode` for the rules."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop
    from torch._inductor.utils import num_fw_fixed_arguments

    from torch_musa_sim.compile.graphed import GraphedCode, warn_not_graphed, why_not_graphed

    def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], static: Sequence[int], kind: str) -> Any:
        code = boxed_nop(graph, list(inputs))
        reason = why_not_graphed(graph, static, _written_inputs(graph))
        if reason is not None:
            warn_not_graphed(f"musagraphs: a {kind} graph", reason)
            return code
        return _boxed(GraphedCode(code, static, f"musagraphs: a {kind} graph"))

    def forward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compile_graph(graph, inputs, range(num_fw_fixed_arguments(len(example_inputs), len(inputs))), "forward")

    def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return compile_graph(graph, inputs, (), "backward")

    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward, keep_inference_input_mutations=True)
    return compiler(gm, example_inputs)


def _boxed(code: Any) -> Any:
    def run(inputs: list[Any]) -> Any:
        return code(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _written_inputs(gm: fx.GraphModule) -> list[int]:
    """Positions of the inputs that the graph writes: those that a mutating operator is given, itself or by a view."""
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    storages = [_storage(node) for node in placeholders]
    written = set()
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, fx.Node):
                    written.add(_storage(value))
    written.discard(None)
    return [i for i, storage in enumerate(storages) if storage in written]


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


class MusagraphsBackend:
    """The registered backend, with the methods that Dynamo looks for."""

    compiler_name = "musagraphs"

    @staticmethod
    def reset() -> None:
        """Nothing outlives `torch._dynamo.reset`: each graph belongs to its compiled code."""

    @staticmethod
    def __call__(model: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return musagraphs(model, inputs)


def register(module: ModuleType) -> None:
    """Adds the backend to `torch._dynamo.backends.registry`."""
    module.register_backend(name="musagraphs", compiler_fn=MusagraphsBackend())
