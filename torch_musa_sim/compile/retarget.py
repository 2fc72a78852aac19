"""A traced graph with musa tensors, rewritten as the CPU graph that computes the same on views of the same memory."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from torch_musa_sim import _C
from torch_musa_sim.compile import twins
from torch_musa_sim.compile.flops import Flops, graph_flops

_CPU = torch.device("cpu")
_HOST = -1


@dataclass
class Retargeted:
    """A graph for the CPU and what its musa original said about devices.

    gm, inputs: the graph and its example inputs, fake or real, all on cpu. results: for each result the index of its
    card, -1 for the cpu and for what is no tensor. synchronizes: the host waits for a value that the graph computes.
    flops: operations of the matrix products, a function of the inputs. compute: dtype in which they are computed.
    """

    gm: fx.GraphModule
    inputs: list[Any]
    results: list[int]
    synchronizes: bool
    flops: Flops
    compute: torch.dtype


def graph_card(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> torch.device | None:
    """The card of a graph: of its first musa input, else of its first node with a musa result; None without any."""
    for value in _values(gm, example_inputs):
        if isinstance(value, torch.Tensor) and value.device.type == "musa":
            return value.device
    return None


def _values(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Iterator[Any]:
    yield from example_inputs
    for node in gm.graph.nodes:
        yield from tree_leaves(node.meta.get("val"))
        if node.op == "get_attr":
            yield _attribute(gm, str(node.target))


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    return operator.attrgetter(target)(gm)


def retarget(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Retargeted:
    """The CPU graph of a musa graph that Inductor is about to compile; `gm` stays as it is.

    Raises NotImplementedError for a graph with collectives, which belong to the card's process group, and for one that
    works on several streams.
    """
    moved = _Moved()
    made = _rewrite(gm, moved)
    flops, compute = graph_flops(gm)
    output = next(iter(reversed(gm.graph.nodes)))
    results = [
        value.device.index if isinstance(value, torch.Tensor) and value.device.type == "musa" else _HOST
        for value in (node.meta.get("val") if isinstance(node, fx.Node) else None for node in output.args[0])
    ]
    return Retargeted(made, [moved(value) for value in example_inputs], results, moved.synchronizes, flops, compute)


class _Moved:
    """Musa values as values on cpu; equal ones stay equal, and fake tensors that share a storage go on sharing it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # keeps the key's tensor alive
        self.synchronizes = False

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return _CPU if value.type == "musa" else value
        if not isinstance(value, torch.Tensor) or value.device.type != "musa":
            return value
        if id(value) not in self._known:
            self._known[id(value)] = (value, self._move(value))
        return self._known[id(value)][1]

    @staticmethod
    def _move(value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, FakeTensor):
            return _C._host_view(value.detach())
        return twins.on_device(value, _CPU)


def _rewrite(gm: fx.GraphModule, moved: _Moved) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, Any] = {}
    for node in gm.graph.nodes:
        copy = copies[node] = graph.node_copy(node, copies.__getitem__)
        copy.meta = {**node.meta, **{key: tree_map(moved, node.meta[key]) for key in ("val",) if key in node.meta}}
        if node.op == "get_attr":
            value = _attribute(gm, str(node.target))
            attributes[str(node.target)] = (
                _rewrite(value, moved) if isinstance(value, fx.GraphModule) else tree_map(moved, value)
            )
        elif node.op == "call_function":
            _refuse_streams(node)
            _rewrite_call(node, copy, moved)
    # What the graph names is replaced, everything else of the module stays reachable.
    made = fx.GraphModule(gm, graph)
    for name, value in attributes.items():
        _set_attribute(made, name, value)
    made.meta = dict(gm.meta)
    return made


def _set_attribute(gm: fx.GraphModule, target: str, value: Any) -> None:
    *path, name = target.split(".")
    owner: torch.nn.Module = gm
    for part in path:
        owner = getattr(owner, part)
    if name in owner._parameters or name in owner._buffers:
        delattr(owner, name)
        if isinstance(value, torch.Tensor):
            owner.register_buffer(name, value)
            return
    setattr(owner, name, value)


def _refuse_streams(node: fx.Node) -> None:
    """A compiled graph is one launch: what it does to other streams and to events would come in another order."""
    if stream_of(node) is not None or getattr(node.target, "namespace", None) == "streams":
        raise NotImplementedError("it uses streams or events, so its operators run one by one, each on its stream")


def stream_of(node: fx.Node) -> int | None:
    """Dynamo's number of the stream that the program has put a node on; None for the caller's current stream."""
    index: int | None = (node.meta.get("custom") or {}).get("stream")
    return index


def _rewrite_call(node: fx.Node, copy: fx.Node, moved: _Moved) -> None:
    target = node.target
    if not _touches_card(node):
        return
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace in ("_c10d_functional", "c10d_functional", "c10d"):
            raise NotImplementedError(f"{target.name()} is a collective, which runs in the process group of the card")
        moved.synchronizes |= _C._op_synchronizes(*_split(target))
        if twins.needs_card(target):
            copy.target = twins.twin_of(target)
            return
        if target in _DEVICE_COPIES:
            crossing = _crossing(node)
            moved.synchronizes |= crossing is not None and crossing[1].type == "cpu"
            if crossing is not None and node.meta["val"].dtype == node.args[0].meta["val"].dtype:  # type: ignore[union-attr]
                copy.target = torch.ops.aten.clone.default
                copy.args = copy.args[:1]
                copy.kwargs = {k: v for k, v in copy.kwargs.items() if k == "memory_format"}
                return
    elif isinstance(target, torch._ops.HigherOrderOperator):
        # An operator that is handed to a higher-order one: the mutating custom operator of auto_functionalized, say.
        copy.args = fx.node.map_aggregate(copy.args, _twin_if_needed)  # type: ignore[assignment]
    copy.args = fx.node.map_aggregate(copy.args, moved)  # type: ignore[assignment]
    copy.kwargs = fx.node.map_aggregate(copy.kwargs, moved)  # type: ignore[assignment]


# Copies between devices that nothing would do once both devices are the cpu.
_DEVICE_COPIES = {torch.ops.prims.device_put.default, torch.ops.aten._to_copy.default}


def _crossing(node: fx.Node) -> tuple[torch.device, torch.device] | None:
    source = node.args[0]
    if not isinstance(source, fx.Node):
        return None
    before, after = source.meta["val"].device, node.meta["val"].device
    return None if before == after else (before, after)


def _split(target: torch._ops.OpOverload) -> tuple[str, str]:
    overload = target._overloadname
    return target._schema.name.split("::")[-1], "" if overload == "default" else overload


def _twin_if_needed(value: Any) -> Any:
    if isinstance(value, torch._ops.OpOverload) and twins.needs_card(value):
        return twins.twin_of(value)
    return value


def _touches_card(node: fx.Node) -> bool:
    values: list[Any] = [tree_leaves(node.meta.get("val"))]
    fx.node.map_aggregate((node.args, node.kwargs), values.append)
    return any(_on_card(value) for value in tree_leaves(values))


def _on_card(value: Any) -> bool:
    if isinstance(value, fx.Node):
        return any(_on_card(leaf) for leaf in tree_leaves(value.meta.get("val")))
    if isinstance(value, torch.device):
        return value.type == "musa"
    return isinstance(value, torch.Tensor) and value.device.type == "musa"
