"""Operators of a graph that generated code runs on the card instead of on the CPU view of its memory."""

import functools
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.utils._pytree import tree_map

from torch_musa_sim import _C

# What Inductor knows, or what is about tensors as such; any other operator may have a kernel of its own for musa.
_TORCHS_OWN = {"aten", "prims", "inductor", "inductor_prims", "mkldnn", "onednn", "quantized", "quantized_decomposed"}

# Operators whose kernel for the card takes dtypes that the CPU's refuses (csrc/backend/ops), beside the upcast ones.
_WIDER_ON_CARD = {"histc", "nansum"}


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
    name = op._schema.name.split("::")[-1]
    return (
        name in _WIDER_ON_CARD
        or _C._op_is_upcast(name)
        or not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "CPU")
    )


@functools.cache
def twin_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator with the same schema that takes CPU views of card memory and runs `op` on the musa tensors."""
    overload = op._overloadname
    name = _C._card_twin(op._schema.name, "" if overload == "default" else overload)
    namespace, plain = name.split("::")
    twin: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), plain), overload)

    def fake(*args: Any, **kwargs: Any) -> Any:
        # As on the card: what an operator's fake kernel refuses for cpu tensors it may accept there.
        on_card, named = tree_map(_to_card, (args, kwargs))
        return tree_map(_to_cpu, op(*on_card, **named))

    torch.library.register_fake(twin, fake)
    return twin


def _to_card(value: Any) -> Any:
    return on_device(value, torch.device("musa", 0)) if _is_fake_on(value, "cpu") else value


def _to_cpu(value: Any) -> Any:
    return on_device(value, torch.device("cpu")) if _is_fake_on(value, "musa") else value


def _is_fake_on(value: Any, kind: str) -> bool:
    return isinstance(value, FakeTensor) and value.device.type == kind


def on_device(value: FakeTensor, device: torch.device) -> FakeTensor:
    """The fake tensor as one of another device, on the same fake storage."""
    with torch.no_grad(), in_kernel_invocation_manager(value.fake_mode):
        return FakeTensor(value.fake_mode, value, device)
