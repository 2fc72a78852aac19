"""Inductor on musa: a graph is compiled as if for the CPU, and the generated code runs on card memory.

Inductor does its part unchanged up to the compilation of a single graph (decompositions, partitioning, caching).
That one step is replaced for graphs with musa tensors: `retarget` turns the graph into one for the CPU, Inductor
compiles it, `region` runs the result. All other graphs go the usual way.
"""

import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import fx

from torch_musa_sim.compile.graphed import GraphedCode, warn_not_graphed, why_not_graphed
from torch_musa_sim.compile.region import CompiledRegion, EagerRegion, region_name
from torch_musa_sim.compile.retarget import Retargeted, graph_card, retarget

InnerCompile = Callable[..., Any]


def install(module: ModuleType) -> None:
    """Takes the place of the single-graph step in `torch._inductor.compile_fx`."""
    original: InnerCompile = module._compile_fx_inner

    def compile_graph(
        gm: fx.GraphModule,
        example_inputs: Sequence[Any],
        compile_region_name: str | None = None,
        **options: Any,
    ) -> Any:
        card = graph_card(gm, example_inputs)
        if card is None or not any(node.op.startswith("call_") for node in gm.graph.nodes):
            return original(gm, example_inputs, compile_region_name=compile_region_name, **options)
        return _compile_for_card(original, card, gm, example_inputs, compile_region_name, options)

    module._compile_fx_inner = compile_graph  # type: ignore[attr-defined]
    torch._functorch._aot_autograd.utils.register_graphsafe_rng_device_type("musa")


def register_backend(module: ModuleType) -> None:
    """Tells those parts of Inductor that see a graph before that step, such as its decompositions, what the code for a
    card can do: what the CPU's can. `module`: torch._inductor.codegen.cpp."""
    from torch._inductor.codegen.common import get_scheduling_for_device, register_backend_for_device
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    if get_scheduling_for_device("musa") is None:
        register_backend_for_device("musa", module.CppScheduling, PythonWrapperCodegen)


def _compile_for_card(
    original: InnerCompile,
    card: torch.device,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_region_name: str | None,
    options: dict[str, Any],
) -> Any:
    from torch._dynamo.exc import RestartAnalysis, SkipFrame
    from torch._inductor.utils import BoxedBool
    from torch._inductor.virtualized import V

    if V.aot_compilation:
        raise NotImplementedError(
            "ahead-of-time compilation (AOTInductor) of a module on musa isn't supported; use torch.compile, or run "
            "the exported program as it is"
        )
    name = region_name(compile_region_name, options)
    try:
        target = retarget(gm, example_inputs)
        compiled = original(
            target.gm,
            target.inputs,
            compile_region_name=compile_region_name,
            **{**options, "cudagraphs": BoxedBool(False)},  # Inductor's own are of CUDA
        )
        region = CompiledRegion(compiled, target, name, card)
        return _graphed(region, target, gm, name, options) if _wants_graphs(options) else region
    except (SkipFrame, RestartAnalysis):
        raise  # no failures, but Dynamo's way of starting again
    except Exception as error:
        warnings.warn(
            f"torch.compile runs a graph of {len(gm.graph.nodes)} nodes on {card} ({name}) without compiling it, as "
            f"Inductor failed: {_reason(error)}",
            stacklevel=2,
        )
        return EagerRegion(gm)


def _wants_graphs(options: dict[str, Any]) -> bool:
    """Whether mode="reduce-overhead" or the option triton.cudagraphs asks for graphs."""
    from torch._inductor import config

    asked = options.get("cudagraphs")
    return bool(config.triton.cudagraphs if asked is None else asked)


def _graphed(
    region: CompiledRegion, target: Retargeted, gm: fx.GraphModule, name: str, options: dict[str, Any]
) -> CompiledRegion:
    # In a backward graph Inductor calls the saved tensors static, too: they are with its own graphs only.
    static = () if options.get("is_backward") else tuple(options.get("static_input_idxs") or ())
    reason = why_not_graphed(gm, static, region.written)
    if reason is None and target.synchronizes:
        reason = "the host waits for a value inside it"
    if reason is not None:
        warn_not_graphed(name, reason)
        return region
    region.replay_by(GraphedCode(region.run, static, name))
    return region


def _reason(error: Exception) -> str:
    cause = getattr(error, "inner_exception", error)
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0]}" if lines else type(cause).__name__
