"""Watches a program and sums up what it did on the cards and on the host."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from torch_musa_sim import _C, musa
from torch_musa_sim.musa import peer as peers
from torch_musa_sim.simulate.coverage import judge


@dataclass(frozen=True)
class CardOperator:
    """An operator that ran on a card.

    kernel: "native", "bridged" (PyTorch's CPU kernel on card memory) or "metadata" (nothing ran: views, sizes).
    bytes: read plus written in card memory. device_ns: virtual nanoseconds. copies: results that came from host memory.
    peer: what the peer does with it: "yes" (a kernel), "composite", "as NAME", "in NAME" (part of what its kernel NAME
    does), "missing", "newer", "other library" (not one of torch's), "not known".
    """

    name: str
    kernel: str
    calls: int
    bytes: int
    device_ns: int
    copies: int
    peer: str


@dataclass(frozen=True)
class HostOperator:
    """An operator of the program whose tensors were in host memory. bytes: of arguments and results."""

    name: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class Copies:
    """Copies in one direction, such as "card to host". bytes: copied."""

    direction: str
    calls: int
    bytes: int


@dataclass(frozen=True)
class LackingOperator:
    """An operator that the peer lacks. ran: as `CardOperator.kernel`, or "composed". callers: composites of torch."""

    name: str
    calls: int
    ran: str
    callers: tuple[str, ...]


@dataclass(frozen=True)
class CoverageReport:
    """What a program did. The operators of the card are in order of their virtual time, those of the host of bytes."""

    program: str
    card: str
    peer: str
    operators: tuple[CardOperator, ...]
    missing: tuple[LackingOperator, ...]
    newer: tuple[LackingOperator, ...]
    host: tuple[HostOperator, ...]
    copies: tuple[Copies, ...]


class Recorder:
    """Watches all threads of the process while it is entered. One at a time; the figures of torch.musa.op_statistics
    start anew with it. `peer` names the stack to compare with."""

    def __init__(self, peer: str = peers.PEERS[0]) -> None:
        self._peer = peers.load(peer)

    def __enter__(self) -> Recorder:
        musa.reset_op_statistics()
        _C._start_call_tree()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._stop_call_tree()

    def report(self, program: str) -> CoverageReport:
        """What was seen so far; `program` is its title."""
        found = judge.read(_C._call_tree(), self._peer)
        operators = tuple(sorted(self._operators(found), key=lambda op: (-op.device_ns, -op.calls, op.name)))
        kernels = {op.name: op.kernel for op in operators}
        return CoverageReport(
            program=program,
            card=_card_name(),
            peer=self._peer.name,
            operators=operators,
            missing=_lacking(found, "missing", kernels),
            newer=_lacking(found, "newer", kernels),
            host=tuple(
                sorted(
                    (HostOperator(name, calls, found.host_bytes[name]) for name, calls in found.host_calls.items()),
                    key=lambda op: (-op.bytes, -op.calls, op.name),
                )
            ),
            copies=tuple(
                Copies(title, found.copy_calls[place], found.copy_bytes[place])
                for place, title in judge.COPIES.items()
                if found.copy_calls[place]
            ),
        )

    def _operators(self, found: judge.Findings) -> list[CardOperator]:
        launched = {op.name: op for op in musa.op_statistics()}
        rows = [
            CardOperator(
                name=op.name,
                kernel="bridged" if op.bridged else "native",
                calls=op.calls,
                bytes=op.bytes,
                device_ns=op.device_ns,
                copies=op.copies,
                peer=self._verdict(op.name, found),
            )
            for op in launched.values()
        ]
        rows += [
            CardOperator(name, "metadata", calls, 0, 0, 0, self._verdict(name, found))
            for name, calls in found.card_calls.items()
            if name not in launched
        ]
        return rows

    def _verdict(self, name: str, found: judge.Findings) -> str:
        if name in found.verdicts:
            return judge.strongest(found.verdicts[name])
        # Launched without a call through the dispatcher: by a graph's replay, or by a kernel of ours.
        alone = judge.Call(name, "PrivateUse1", True, 0, 0, [])
        return judge.verdict_of(self._peer.judge(name), self._peer, alone)


def _lacking(found: judge.Findings, kind: str, kernels: dict[str, str]) -> tuple[LackingOperator, ...]:
    rows = []
    for name, lack in found.lacks.items():
        if lack.kind == kind:
            ran = "composed" if lack.composed else kernels.get(name, "composed")
            rows.append(LackingOperator(name, lack.calls, ran, tuple(sorted(lack.callers))))
    return tuple(sorted(rows, key=lambda row: (-row.calls, row.name)))


def _card_name() -> str:
    return musa.get_device_name(0) if musa.is_available() else "no card"
