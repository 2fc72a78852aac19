"""The rows of benchmarks/kernels.py, one module per family of operators."""

from kernel_rows import glue, moe
from kernel_rows.row import Case, Goal, Limits, Row, batch_of

FAMILIES = (glue.rows, moe.rows)

__all__ = ["FAMILIES", "Case", "Goal", "Limits", "Row", "batch_of"]
