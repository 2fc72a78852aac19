"""The dtype contract: which (operator, dtype) pairs musa must accept, read from torch_musa_sim/data/cuda_dtypes.tsv."""

import csv
from pathlib import Path
from typing import NamedTuple

import torch

TABLE = Path(__file__).parents[2] / "torch_musa_sim" / "data" / "cuda_dtypes.tsv"


class Contract(NamedTuple):
    """What CUDA accepts of one operator; both sets are empty where CUDA has no kernel, or where musa refuses it."""

    forward: frozenset[torch.dtype]
    backward: frozenset[torch.dtype]
    deviation: str

    @property
    def cpu_only(self) -> bool:
        """CUDA lacks the operator, musa runs it with the CPU's dtypes."""
        return self.deviation.startswith("CUDA has no kernel")


def _dtypes(cell: str) -> frozenset[torch.dtype]:
    return frozenset(getattr(torch, name) for name in cell.split(",") if name)


def load() -> dict[tuple[str, str], Contract]:
    """Contract of each operator, keyed by (name, variant) as in op_db."""
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        (row["op"], row["variant"]): Contract(_dtypes(row["forward"]), _dtypes(row["backward"]), row["deviation"])
        for row in rows
    }
