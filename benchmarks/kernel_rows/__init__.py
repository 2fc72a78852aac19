"""The rows of benchmarks/kernels.py, one module per family of operators."""

from kernel_rows import attention, dense, glue, invariance, moe, pages, qkv, quantised, sampling
from kernel_rows.row import Case, Goal, Limits, Row, batch_of

FAMILIES = (
    dense.rows,
    attention.rows,
    pages.rows,
    glue.rows,
    moe.rows,
    qkv.rows,
    sampling.rows,
    quantised.rows,
    invariance.rows,
)

__all__ = ["FAMILIES", "Case", "Goal", "Limits", "Row", "batch_of"]
