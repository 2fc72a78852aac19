"""What another stack has of torch's operators: `torch_musa` 2.7.1, which needs a patched torch 2.7.1.

The facts are tables in torch_musa_sim/data; each says where it comes from. From them follows, for an operator of this
torch, what that stack would do with it (`Peer.judge`). `TORCH_MUSA_SIM_OPS` makes this process do the same (`follow`).
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from torch_musa_sim import _C

DATA = Path(__file__).resolve().parent.parent / "data"
PEERS = ("torch_musa-2.7.1",)

# "kernel": it has one. "as": it runs under another name. "composite": torch 2.7.1 composes it of other operators.
# "missing": neither. "newer": torch 2.7.1 doesn't know the operator. "foreign": not one of torch's own.
Kind = Literal["kernel", "as", "composite", "missing", "newer", "foreign"]

_COMPOSITE_KEYS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_STRUCTURED_KEY = "CompositeExplicitAutogradNonFunctional"  # calls the out= form of the operator


@dataclass(frozen=True)
class Judgement:
    """What the peer does with one operator. by: the operators that serve it there, where that is known."""

    kind: Kind
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit:
    """An argument that the peer accepts less of; see csrc/backend/coverage/peer.h."""

    op: str
    argument: str
    rule: str
    value: str
    source: str


@dataclass(frozen=True)
class Peer:
    """The tables of one stack. Operators are named as in torch's dispatcher, "aten::add.Tensor"."""

    name: str
    kernels: dict[str, frozenset[str]]  # operator -> dispatch keys with a kernel
    classes: dict[str, tuple[str, str]]  # operator of that torch -> class, operator that a structured one calls
    notes: dict[str, tuple[str, str]]  # operator -> verdict, by
    limits: tuple[Limit, ...]

    def judge(self, op: str, key: str = "PrivateUse1") -> Judgement:
        """`key`: the dispatch key of the operands, such as "SparsePrivateUse1"."""
        if key in self.kernels.get(op, ()):
            return Judgement("kernel")
        verdict, by = self.notes.get(op, ("", ""))
        if verdict == "as":
            return Judgement("as", (by,))
        if verdict == "keep":
            return Judgement("kernel")
        if verdict == "missing":
            return Judgement("missing")
        if not op.startswith("aten::"):
            return Judgement("foreign")
        if op not in self.classes:
            return Judgement("newer")
        kind, delegate = self.classes[op]
        if kind in ("implicit", "explicit"):
            return Judgement("composite", tuple(by.split(",")) if verdict == "parts" else ())
        if kind == "structured" and self.judge(delegate, key).kind == "kernel":
            return Judgement("composite", (delegate,))
        return Judgement("missing")

    def replays_newer(self, op: str) -> bool:
        """Whether an operator newer than the peer is there as what its composite in this torch calls."""
        return self.notes.get(op, ("", ""))[0] != "refuse" and _has_kernel(op, *_COMPOSITE_KEYS)


def _has_kernel(op: str, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(op, key) for key in keys)


def _rows(name: str) -> Iterator[list[str]]:
    """The rows of a table, without comments and the line of column names."""
    lines = (line for line in (DATA / name).read_text().splitlines() if not line.startswith("#"))
    next(lines)
    for line in lines:
        yield line.split("\t")


@functools.cache
def load(name: str = PEERS[0]) -> Peer:
    """The tables of `name`. Raises ValueError for a stack that there are none of."""
    if name not in PEERS:
        raise ValueError(f"there are no tables of {name!r}; accepted: {', '.join(PEERS)}")
    return Peer(
        name=name,
        kernels={op: frozenset(keys.split(",")) for op, keys in _rows(f"{name}_ops.tsv")},
        classes={f"aten::{op}": (kind, f"aten::{by}") for op, kind, by in _rows("torch-2.7.1_ops.tsv")},
        notes={op: (verdict, by) for op, verdict, by, _ in _rows(f"{name}_notes.tsv")},
        limits=tuple(Limit(*row) for row in _rows(f"{name}_limits.tsv")),
    )


def follow(peer: Peer) -> None:
    """Makes the operators of this process behave as the peer's, for good.

    What it lacks raises NotImplementedError, what it composes of others is composed here, too, and arguments that it
    refuses are refused (RuntimeError). To be called once, when all kernels are registered.
    """
    refused, replayed = [], []
    for op in torch._C._dispatch_get_all_op_names():
        if not op.startswith("aten::"):
            continue
        judgement = peer.judge(op)
        ours = _has_kernel(op, "PrivateUse1")
        if judgement.kind == "missing" or (judgement.kind == "newer" and not peer.replays_newer(op)):
            if ours or torch._C._dispatch_has_computed_kernel_for_dispatch_key(op, "CPU"):
                refused.append(op)
        elif judgement.kind in ("composite", "newer") and ours and _has_kernel(op, *_COMPOSITE_KEYS, _STRUCTURED_KEY):
            replayed.append(op)
    _C._replay_composites(replayed)
    _C._limit_operators([(row.op, row.argument, row.rule, row.value) for row in peer.limits], peer.name)
    _C._refuse_operators(refused, peer.name)


def follow_if_asked() -> None:
    """Follows the stack that TORCH_MUSA_SIM_OPS names. A value that isn't accepted is refused at first use."""
    asked = next(entry["value"] for entry in _C._settings() if entry["name"] == "TORCH_MUSA_SIM_OPS")
    if asked in PEERS:
        follow(load(asked))
