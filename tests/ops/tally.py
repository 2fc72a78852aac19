"""Counts what the operator suite compared; printed and judged at the end of the session, merged over processes."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

REQUIRED_PERCENT = 95.0


@dataclass
class Tally:
    """Samples by check. `cpu` counts those the CPU itself passes, `musa` those of them that musa passes too."""

    ops: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    cpu: Counter[str] = field(default_factory=Counter)
    musa: Counter[str] = field(default_factory=Counter)
    exact: Counter[str] = field(default_factory=Counter)
    random: set[str] = field(default_factory=set)
    upcast: set[tuple[str, str]] = field(default_factory=set)
    # (check, op, how the CPU fails) -> samples; not counted above
    cpu_fails: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def merge(self, other: dict[str, Any]) -> None:
        for name in ("ops", "random"):
            getattr(self, name).update(other[name])
        for name in ("pairs", "upcast"):
            getattr(self, name).update(tuple(entry) for entry in other[name])
        for name in ("cpu", "musa"):
            getattr(self, name).update(other[name])
        for *key, count in other["cpu_fails"]:
            self.cpu_fails[tuple(key)] += count  # type: ignore[index]

    def plain(self) -> dict[str, Any]:
        """The counts as lists and dicts, for the pipe between two test processes."""
        return {
            "ops": sorted(self.ops),
            "random": sorted(self.random),
            "pairs": sorted(self.pairs),
            "upcast": sorted(self.upcast),
            "cpu": dict(self.cpu),
            "musa": dict(self.musa),
            "cpu_fails": [[*key, count] for key, count in self.cpu_fails.items()],
        }

    def percent(self) -> float:
        """Samples musa passes, in percent of those the CPU itself passes."""
        return 100.0 * self.musa.total() / max(1, self.cpu.total())

    def report(self) -> list[str]:
        lines = []
        for check in sorted(self.cpu):
            lines.append(f"{check:<22} {self.musa[check]:>7} of {self.cpu[check]:>7} samples")
        grouped: dict[tuple[str, str], list[str]] = {}
        for check, op, how in sorted(self.cpu_fails):
            grouped.setdefault((check, how), []).append(op)
        if grouped:
            lines.append("cpu fails the same check in the same way (not counted):")
            lines += [f"  {check}: {how}: {', '.join(ops)}" for (check, how), ops in sorted(grouped.items())]
        if self.random:
            lines.append(f"compared by shape and dtype only, being random: {', '.join(sorted(self.random))}")
        lines.append(
            f"{len(self.ops)} ops, {len(self.pairs)} (op, dtype) pairs, {self.musa.total()} samples compared, "
            f"{self.percent():.2f} % of cpu's own number; {len(self.upcast)} pairs without a CPU kernel were compared "
            "with a wider dtype"
        )
        return lines


TALLY = Tally()
