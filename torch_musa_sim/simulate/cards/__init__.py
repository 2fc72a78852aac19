"""Card models: the files beside this module, each value with its trust and source.

The C++ runtime reads the same files. A line is ``key = value  # trust: source``; rates are SI units per second and
count times their ``.efficiency``, times are nanoseconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TRUSTS = ("vendor", "measured", "assumed")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    """One value of a card file and how far to trust it."""

    value: str
    trust: str
    source: str

    @property
    def number(self) -> float:
        """The value as a number; ValueError for the names."""
        return float(self.value)


def card_models() -> list[str]:
    """Names that TORCH_MUSA_SIM_CARD accepts, for example ``["S4000", "S5000", "S80"]``."""
    return sorted(file.stem.upper() for file in _FOLDER.glob("*.card"))


def read_card(model: str | Path) -> dict[str, Figure]:
    """All figures of a card, by key.

    Args:
        model: a name from :func:`card_models` in any case, or the path of a card file.

    Raises:
        ValueError: unknown model, or a line that isn't ``key = value  # trust: source``.
    """
    path = Path(model) if "/" in str(model) or str(model).endswith(".card") else _FOLDER / f"{str(model).lower()}.card"
    if not path.is_file():
        raise ValueError(f"no card file {path}; known models: {', '.join(card_models())}, or give the path of a file")
    figures: dict[str, Figure] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assignment, _, remark = line.partition("#")
        key, equals, value = (part.strip() for part in assignment.partition("="))
        trust, _, source = (part.strip() for part in remark.partition(":"))
        if not equals or trust not in TRUSTS or not source:
            raise ValueError(
                f"{path} line {number}: expected `key = value  # {'|'.join(TRUSTS)}: source`, got {line!r}"
            )
        if key in figures:
            raise ValueError(f"{path} line {number}: {key} is given twice")
        figures[key] = Figure(value, trust, source)
    return figures


def effective_rate(figures: dict[str, Figure], key: str) -> float:
    """A rate times its efficiency, per second: what the cost model divides by."""
    return figures[key].number * figures[f"{key}.efficiency"].number
