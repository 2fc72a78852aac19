"""Operators of a graph that generated code runs on the card instead of on the CPU view of its memory."""

import functools
from typing import Any

import torch
from torch.utils._pytree import tree_map

from torch_musa_sim import _C

# What Inductor knows, or what is about tensors as such; any other operator may have a kernel of its own for musa.
_TORCHS_OWN = {"aten", "prims", "inductor", "inductor_prims", "mkldnn", "onednn", "quantized", "quantized_decomposed"}


@functools.cache
def needs_card(op: torch._ops.OpOverload) -> bool:
    """True for random operators (their numbers are the card's), for those whose CPU kernel is missing or takes fewer
    dtypes than the card, and for operators of other packages."""
    if op.namespace == "musa_card":
        return False
    if torch.Tag.nondeterministic_seeded in op.tags or op.namespace not in _TORCHS_OWN:
        return True
    if op.namespace != "aten":
        return False
    return _C._op_is_upcast(op._schema.name.split("::")[-1]) or not (
        torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "CPU")
    )


@functools.cache
def twin_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator with the same schema that takes CPU views of card memory and runs `op` on the musa tensors."""
    overload = op._overloadname
    name = _C._card_twin(op._schema.name, "" if overload == "default" else overload)
    namespace, plain = name.split("::")
    twin: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), plain), overload)

    def fake(*args: Any, **kwargs: Any) -> Any:
        on_cpu, named = tree_map(_to_cpu, (args, kwargs))
        return op(*on_cpu, **named)

    torch.library.register_fake(twin, fake)
    return twin


def _to_cpu(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "musa" else value
