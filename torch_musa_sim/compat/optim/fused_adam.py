"""Adam in one fused operator."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from .. import _ext as ext_module


class FusedAdam(torch.optim.Adam):
    """torch.optim.Adam with `fused=True` under the real package's name and signature.

    Parameters are floating-point tensors on musa or cpu. `differentiable` isn't available with a fused step and raises
    RuntimeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
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
        """As torch.optim.Adam; the state of an Adam that isn't fused is taken, too."""
        # torch puts the steps where the saved groups say, so these must say fused.
        groups = [group | {"fused": True, "foreach": None} for group in state_dict["param_groups"]]
        super().load_state_dict(state_dict | {"param_groups": groups})


def _fused_adam(
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
    """One step of Adam for lists of equal length; `state_steps` are counted up here. See torch.optim.adam.adam."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, fused=True, capturable=capturable,
        differentiable=differentiable, grad_scale=grad_scale, found_inf=found_inf, has_complex=has_complex,
        amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip


_fused_adam_impl = _fused_adam
_fused_adam_tensor_lr = _fused_adam

__all__ = ["FusedAdam", "ext_module"]
