"""Operators that compiled code leaves to ATen."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import remove_decompositions
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import make_fallback

aten = torch.ops.aten

_decomps_to_exclude = [aten.nll_loss_forward, aten.nll_loss_backward, aten.embedding_dense_backward]


def _fallback_to_aten(
    aten_ops: Sequence[Any], layout_constraint: Callable[..., Any] | None = None, warn: bool = True
) -> None:
    """Makes Inductor call these operators instead of decomposing and fusing them, on every device.

    aten_ops: operators such as torch.ops.aten.erfinv, or their overloads. layout_constraint, warn: as in torch's
    `make_fallback`; warn says so where a decomposition exists.
    """
    remove_decompositions(decompositions, aten_ops)
    for operator in aten_ops:
        make_fallback(operator, layout_constraint, warn, override_decomp=True)


def _make_torch_musa_aten_fallback() -> None:
    """Leaves to ATen what the real package does: NLL loss and the gradients of embeddings."""
    _fallback_to_aten(_decomps_to_exclude, warn=False)
