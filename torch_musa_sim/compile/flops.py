"""Operations of a graph's matrix products, for the cost model."""

from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from torch_musa_sim.compile import twins

Flops = Callable[[Sequence[Any]], float]


def graph_flops(gm: fx.GraphModule) -> tuple[Flops, torch.dtype]:
    """(operations as a function of the graph's inputs, dtype of the first product).

    Operators that run on the card by themselves aren't counted here. A multiply-add counts as two.
    """
    total: Any = 0
    compute: torch.dtype | None = None
    for node in gm.graph.nodes:
        op = node.target
        if not isinstance(op, torch._ops.OpOverload) or op.overloadpacket not in flop_registry or twins.needs_card(op):
            continue
        args, kwargs = tree_map(_value, (node.args, node.kwargs))
        total = total + flop_registry[op.overloadpacket](*args, **kwargs, out_val=node.meta["val"])
        compute = compute or next(a.dtype for a in args if isinstance(a, torch.Tensor))
    return _as_function(gm, total), compute or torch.float32


def _value(arg: Any) -> Any:
    return arg.meta.get("val") if isinstance(arg, fx.Node) else arg


def _as_function(gm: fx.GraphModule, total: Any) -> Flops:
    if not isinstance(total, torch.SymInt):
        constant = float(total)
        return lambda inputs: constant
    expression = total.node.expr
    sources = _symbol_sources(gm)
    symbols = sorted(expression.free_symbols, key=str)
    if any(symbol not in sources for symbol in symbols):  # a size that only the run itself finds out
        hint = total.node.hint
        known = float(hint) if hint is not None else 0.0
        return lambda inputs: known
    compute = sympy.lambdify(symbols, expression, "math")
    readers = [sources[symbol] for symbol in symbols]
    return lambda inputs: float(compute(*(read(inputs) for read in readers)))


def _symbol_sources(gm: fx.GraphModule) -> dict[Any, Callable[[Sequence[Any]], int]]:
    """How to read each size symbol off the graph's inputs."""
    sources: dict[Any, Callable[[Sequence[Any]], int]] = {}
    placeholders = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    for position, value in enumerate(placeholders):
        if isinstance(value, torch.SymInt):
            sources.setdefault(value.node.expr, lambda inputs, i=position: int(inputs[i]))  # type: ignore[misc]
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    sources.setdefault(size.node.expr, lambda inputs, i=position, d=dim: inputs[i].shape[d])  # type: ignore[misc]
    return sources
