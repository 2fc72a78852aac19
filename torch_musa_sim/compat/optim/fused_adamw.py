"""AdamW in one fused operator."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from .. import _ext as ext_module


class FusedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW with `fused=True` under the real package's name and signature.

    Parameters are floating-point tensors on musa or cpu. `differentiable` isn't available with a fused step and raises
    RuntimeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=True,
        )  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch.optim.AdamW; the state of an AdamW that isn't fused is taken, too."""
        # torch puts the steps where the saved groups say, so these must say fused.
        groups = [group | {"fused": True, "foreach": None} for group in state_dict["param_groups"]]
        super().load_state_dict(state_dict | {"param_groups": groups})


def _fused_adamw(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    lr: float | Tensor,
    capturable: bool = False,
    differentiable: bool = False,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    *,
    amsgrad: bool,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of AdamW for lists of equal length; `state_steps` are counted up here. See torch.optim.adamw.adamw."""
    adamw(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, fused=True, capturable=capturable,
        differentiable=differentiable, grad_scale=grad_scale, found_inf=found_inf, has_complex=has_complex,
        amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip


_fused_adamw_impl = _fused_adamw
_fused_adamw_tensor_lr = _fused_adamw

__all__ = ["FusedAdamW", "ext_module"]
