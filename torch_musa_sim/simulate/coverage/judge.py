"""Reads the tree of a program's calls: what ran where, and what a peer would lack.

An operator counts where it was computed: at the first kernel on the way down from the program's call. What a peer does
is decided on the same way: from the first operator on that it has a kernel for, nothing below matters to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from torch_musa_sim.musa.peer import Judgement, Peer

COPIES = {
    "ToCard": "host to card",
    "ToHost": "card to host",
    "BetweenCards": "card to card",
    "OnCard": "within a card",
}


class Call(NamedTuple):
    """All calls of one operator by one caller: what _C._call_tree() returns; see csrc/backend/coverage/call_tree.h."""

    name: str
    place: str
    kernel: bool
    calls: int
    bytes: int
    children: list[tuple[object, ...]]


@dataclass
class Lack:
    """An operator that the peer lacks. callers: the composites that called it, without the program itself."""

    kind: str  # "missing" | "newer"
    calls: int = 0
    composed: bool = False  # here it was composed of others, too
    callers: set[str] = field(default_factory=set)


@dataclass
class Findings:
    """Sums over the tree. Counters map an operator (or a direction of copies) to calls and bytes."""

    host_calls: Counter[str] = field(default_factory=Counter)
    host_bytes: Counter[str] = field(default_factory=Counter)
    card_calls: Counter[str] = field(default_factory=Counter)
    copy_calls: Counter[str] = field(default_factory=Counter)
    copy_bytes: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, set[str]] = field(default_factory=dict)
    lacks: dict[str, Lack] = field(default_factory=dict)


def read(root: tuple[object, ...], peer: Peer) -> Findings:
    """`root`: of _C._call_tree()."""
    reader = _Reader(peer)
    for child in Call(*root).children:  # type: ignore[arg-type]
        reader.visit(Call(*child), None, None)  # type: ignore[arg-type]
    return reader.found


# The strongest first: one operator may be called in several ways.
ORDER = ("missing", "newer", "not known", "other library", "as ", "composite", "yes", "in ")


def strongest(verdicts: set[str]) -> str:
    """The verdict to show for an operator that got several."""
    return min(verdicts, key=lambda verdict: (next(i for i, v in enumerate(ORDER) if verdict.startswith(v)), verdict))


class _Reader:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.found = Findings()

    def visit(self, node: Call, caller: str | None, served_by: str | None) -> None:
        """caller: the composite that called. served_by: the peer's kernel that the call is inside of, there."""
        found = self.found
        if node.place == "CPU":
            if node.kernel:
                found.host_calls[node.name] += node.calls
                found.host_bytes[node.name] += node.bytes
        elif node.place in COPIES:
            found.copy_calls[node.place] += node.calls
            found.copy_bytes[node.place] += node.bytes
            self.note(node.name, "yes")
        elif node.place != "Other":
            if node.kernel:
                found.card_calls[node.name] += node.calls
            served_by = self.judge(node, caller, served_by)
        for child in node.children:
            self.visit(Call(*child), node.name, served_by)  # type: ignore[arg-type]

    def note(self, name: str, verdict: str) -> None:
        self.found.verdicts.setdefault(name, set()).add(verdict)

    def judge(self, node: Call, caller: str | None, served_by: str | None) -> str | None:
        """Notes the verdict on one operator; returns what serves the operators below it."""
        if served_by is not None:
            self.note(node.name, f"in {served_by}")
            return served_by
        judgement = self.peer.judge(node.name, node.place)
        verdict = verdict_of(judgement, self.peer, node)
        self.note(node.name, verdict)
        if verdict in ("missing", "newer"):
            lack = self.found.lacks.setdefault(node.name, Lack(verdict))
            lack.calls += node.calls
            lack.composed |= not node.kernel
            lack.callers |= {caller} if caller is not None else set()
        if judgement.kind in ("kernel", "as") or verdict == "missing" or (node.kernel and verdict != "other library"):
            return node.name
        return None


def verdict_of(judgement: Judgement, peer: Peer, node: Call) -> str:
    """The column of the report: one of `ORDER`, completed."""
    match judgement.kind:
        case "kernel":
            return "yes"
        case "as":
            return f"as {judgement.by[0]}"
        case "foreign":
            return "other library"
        case "composite" if not node.kernel:
            return "composite"
        case "composite" if not judgement.by:
            return "not known"
        case "composite":
            lacking = [part for part in judgement.by if peer.judge(part, node.place).kind != "kernel"]
            return "missing" if lacking else "composite"
        case kind:
            return kind
