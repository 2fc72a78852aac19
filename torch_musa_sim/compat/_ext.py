"""Fused updates for optimizers and a sharded loss, under the names of the real package's second extension.

Tensors are on musa (or all on the CPU). Each function works on lists of equal length and updates in place what it says.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Lists = list[list[Tensor]]


def _require_lists(tensor_lists: Lists, count: int, what: str) -> None:
    if len(tensor_lists) != count or len({len(one) for one in tensor_lists}) != 1:
        raise ValueError(
            f"{what} takes {count} lists of equal length, but got lists of {[len(one) for one in tensor_lists]} tensors"
        )


def multi_tensor_l2norm(
    chunk_size: int, noop_flag: Tensor, tensor_lists: Lists, per_tensor: bool | None = False
) -> tuple[Tensor, Tensor]:
    """L2 norm over every tensor of one list, as (norm of all, norms one by one), both float32.

    The first has shape (1,), the second one element a tensor, or none unless `per_tensor`. `chunk_size` is how many
    elements a block of the real kernel takes; it has no influence on the result. A norm that isn't finite sets
    `noop_flag` to 1.
    """
    _require_lists(tensor_lists, 1, "multi_tensor_l2norm")
    norms = torch.stack(torch._foreach_norm([tensor.float() for tensor in tensor_lists[0]]))
    total = norms.norm().reshape(1)
    noop_flag.masked_fill_(~total.isfinite().reshape(noop_flag.shape), 1)
    return total, norms if per_tensor else norms.new_empty(0)


def multi_tensor_lamb(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Lists,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    bias_correction: int,
    weight_decay: float,
    grad_averaging: int,
    mode: int,
    global_grad_norm: Tensor,
    max_grad_norm: float,
    use_nvlamb: bool | None = False,
) -> None:
    """One LAMB step (You et al., "Large Batch Optimization for Deep Learning", 2020) for a group of parameters.

    tensor_lists: gradients, parameters, first and second moments; all but the gradients are updated. step: counts from
    1. mode: 0 adds `weight_decay` times the parameter to the gradient, 1 to the update (as AdamW). Gradients are
    divided by global_grad_norm / max_grad_norm where that is above 1. The trust ratio ||p|| / ||update|| applies when
    there is weight decay, or always with `use_nvlamb`. Nothing changes while `noop_flag` isn't 0.
    """
    _require_lists(tensor_lists, 4, "multi_tensor_lamb")
    if mode not in (0, 1):
        raise ValueError(f"mode is 0 (decay of the gradient) or 1 (decay of the update), but got {mode}")
    go_on = noop_flag.reshape(()) == 0
    clip = (global_grad_norm.reshape(()).float() / max_grad_norm).clamp(min=1.0)
    share = 1 - beta1 if grad_averaging else 1.0
    first_correction = 1 - beta1**step if bias_correction else 1.0
    second_correction = 1 - beta2**step if bias_correction else 1.0
    for grad, parameter, first, second in zip(*tensor_lists, strict=True):
        p, m, v = parameter.float(), first.float(), second.float()
        g = grad.float() / clip
        if mode == 0:
            g = g + weight_decay * p
        m = beta1 * m + share * g
        v = beta2 * v + (1 - beta2) * g * g
        update = (m / first_correction) / ((v / second_correction).sqrt() + epsilon)
        if mode == 1:
            update = update + weight_decay * p
        rate: Tensor | float = lr
        if use_nvlamb or weight_decay != 0:
            p_norm, update_norm = p.norm(), update.norm()
            rate = lr * torch.where((p_norm > 0) & (update_norm > 0), p_norm / update_norm, torch.ones_like(p_norm))
        for target, value in ((parameter, p - rate * update), (first, m), (second, v)):
            target.copy_(torch.where(go_on, value, target.float()))


def _by_position(step: Callable[..., None], name: str) -> Callable[..., None]:
    """torch's fused operator with every argument by position, as the real extension takes them."""

    def fused(
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        lr: float | Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        step(
            params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr=lr, beta1=beta1, beta2=beta2,
            weight_decay=weight_decay, eps=eps, amsgrad=amsgrad, maximize=maximize, grad_scale=grad_scale,
            found_inf=found_inf,
        )  # fmt: skip

    fused.__name__ = fused.__qualname__ = f"fused_{name.lower()}"
    counted = "`state_steps` hold the step's number already"
    fused.__doc__ = f"One {name} step in place; {counted}. See torch.optim.{name} for the formula."
    return fused


fused_adam = _by_position(torch._fused_adam_, "Adam")
fused_adamw = _by_position(torch._fused_adamw_, "AdamW")


def _local_targets(logits: Tensor, targets: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """(position of each target in this rank's columns, whether it lies there); the position is 0 where it doesn't."""
    if logits.dim() != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            f"expected logits (tokens, columns) and targets (tokens,), but got {tuple(logits.shape)} and "
            f"{tuple(targets.shape)}"
        )
    local = targets - rank * logits.shape[1]
    inside = (local >= 0) & (local < logits.shape[1])
    return local.where(inside, torch.zeros_like(local)), inside


def online_softmax(logits: Tensor, targets: Tensor, rank: int) -> Tensor:
    """What one rank knows of a softmax whose columns are split over ranks.

    logits: (tokens, columns of this rank). targets: (tokens,), indices over the columns of all ranks. Returns (tokens,
    3): the largest logit, the sum of exp(logit - largest), and the target's logit or -inf where another rank has it.
    """
    local, inside = _local_targets(logits, targets, rank)
    largest = logits.amax(1)
    of_target = logits.gather(1, local[:, None])[:, 0]
    of_target = of_target.where(inside, torch.full_like(of_target, -torch.inf))
    return torch.stack((largest, (logits - largest[:, None]).exp().sum(1), of_target), 1)


def cross_entropy_loss(
    logits: Tensor, targets: Tensor, gathered_max_sum_y: Tensor, rank: int, world_size: int, reduction: str = "mean"
) -> Tensor:
    """Cross entropy over columns that are split over ranks; overwrites `logits` with the loss's gradient.

    gathered_max_sum_y: (tokens, 3 * world_size), the results of `online_softmax` of all ranks side by side. reduction:
    "mean" or "sum" give a scalar; "none" gives (tokens,) and the gradient of the sum.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f'reduction is "mean", "sum" or "none", but got {reduction!r}')
    local, inside = _local_targets(logits, targets, rank)
    parts = gathered_max_sum_y.reshape(len(targets), world_size, 3)
    largest = parts[:, :, 0].amax(1)
    total = (parts[:, :, 1] * (parts[:, :, 0] - largest[:, None]).exp()).sum(1)
    losses = largest + total.log() - parts[:, :, 2].amax(1)
    gradient = (logits - largest[:, None]).exp() / total[:, None]
    gradient.scatter_add_(1, local[:, None], -inside[:, None].to(gradient.dtype))
    logits.copy_(gradient / len(targets) if reduction == "mean" else gradient)
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
