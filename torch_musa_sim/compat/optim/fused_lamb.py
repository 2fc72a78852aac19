"""LAMB over lists of tensors."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from .. import _ext as ext_module
from ..multi_tensor_apply import multi_tensor_applier


class FusedLAMB(torch.optim.Optimizer):
    """LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020) for parameters on musa.

    lr, betas, eps, weight_decay: as Adam's. adam_w_mode: decay is added to the update, not to the gradient.
    grad_averaging: the new gradient counts (1 - beta1) in the first moment. max_grad_norm: gradients are scaled down
    where their norm over all groups is above it. use_nvlamb: the trust ratio applies without weight decay, too.
    set_grad_none: what `zero_grad()` does. amsgrad isn't available and raises RuntimeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        if amsgrad:
            raise RuntimeError("FusedLAMB has no AMSGrad variant; use amsgrad=False")
        if lr < 0 or eps < 0 or weight_decay < 0 or max_grad_norm <= 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                "FusedLAMB takes lr, eps and weight_decay of at least 0, max_grad_norm above 0 and betas in [0, 1), "
                f"but got lr={lr}, eps={eps}, weight_decay={weight_decay}, max_grad_norm={max_grad_norm}, betas={betas}"
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "bias_correction": bias_correction,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "grad_averaging": grad_averaging,
                "max_grad_norm": max_grad_norm,
            },
        )
        self.adam_w_mode = 1 if adam_w_mode else 0
        self.set_grad_none = set_grad_none
        self.use_nvlamb = use_nvlamb

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients, or sets them to zero when the optimizer was made with set_grad_none=False."""
        super().zero_grad(set_to_none=set_to_none and self.set_grad_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        """One step; returns the closure's loss, None without a closure. Sparse gradients raise RuntimeError."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            return loss
        if any(gradient.is_sparse for gradient in gradients):
            raise RuntimeError("FusedLAMB takes dense gradients only; use torch.optim.SparseAdam for sparse ones")
        device = gradients[0].device
        noop = torch.zeros(1, dtype=torch.int32, device=device)
        norm, _ = multi_tensor_applier(ext_module.multi_tensor_l2norm, noop, [gradients])
        noop.zero_()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            beta1, beta2 = group["betas"]
            for lists in self._lists_by_dtype(group).values():
                multi_tensor_applier(
                    ext_module.multi_tensor_lamb, noop, lists, group["lr"], beta1, beta2, group["eps"], group["step"],
                    int(group["bias_correction"]), group["weight_decay"], int(group["grad_averaging"]),
                    self.adam_w_mode, norm, group["max_grad_norm"], self.use_nvlamb,
                )  # fmt: skip
        return loss

    def _lists_by_dtype(self, group: dict[str, Any]) -> dict[torch.dtype, list[list[Tensor]]]:
        lists: dict[torch.dtype, list[list[Tensor]]] = defaultdict(lambda: [[], [], [], []])
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            row = (parameter.grad, parameter, state["exp_avg"], state["exp_avg_sq"])
            for column, tensor in zip(lists[parameter.dtype], row, strict=True):
                column.append(tensor)
        return lists
