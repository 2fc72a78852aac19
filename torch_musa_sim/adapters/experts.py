"""transformers' experts on musa.

transformers keeps a registry of ways to compute a layer's experts, and chooses among them by the name of the device:
while it decodes on anything but the CPU it copies the weights of the chosen experts for each token. Here its two
standard ways become torch.ops.musa.fused_moe where tensors are on musa, and the registry gets one more of that name.
"""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import torch

from torch_musa_sim import _C

Experts = Callable[..., Any]

NAME = "musa_fused_moe"
_STANDARD = ("grouped_mm", "batched_mm")

# By the name of the class, which is all that versions of transformers have in common.
_ACTIVATIONS = {
    "SiLUActivation": "silu",
    "SiLU": "silu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
}


def install(module: ModuleType) -> None:
    """Teaches transformers.integrations.moe, once; a version of it without such a registry is left as it is."""
    registry = getattr(module, "ExpertsInterface", None)
    standard = getattr(registry, "_global_mapping", None)
    register = getattr(registry, "register", None)
    gate = getattr(module, "_default_apply_gate", None)
    if (
        not isinstance(standard, dict)
        or register is None
        or gate is None
        or "grouped_mm" not in standard
        or NAME in standard
    ):
        return
    if not _C._native_enabled("musa::fused_moe"):
        return
    register(NAME, _on_musa(standard["grouped_mm"], gate))
    for name in _STANDARD:
        if name in standard:
            register(name, _on_musa(standard[name], gate))


def _on_musa(stock: Experts, gate: Experts) -> Experts:
    """The fused kernel where it computes what `stock` does, which is `stock` in all other cases."""

    @wraps(stock)
    def experts(self: torch.nn.Module, hidden_states: torch.Tensor, *arguments: Any, **keywords: Any) -> Any:
        if hidden_states.device.type == "musa" and len(arguments) == 2 and not keywords:
            activation = _activation(self, gate)
            if activation is not None and _fits(self, hidden_states):
                ids, weights = arguments
                return torch.ops.musa.fused_moe(
                    hidden_states, self.gate_up_proj, self.down_proj, ids, weights, activation=activation
                )[0]
        return stock(self, hidden_states, *arguments, **keywords)

    return experts


def _activation(module: torch.nn.Module, gate: Experts) -> str | None:
    """What stands between the two products, where that is activation(gate) * up and nothing else."""
    if getattr(type(module), "_apply_gate", None) is not gate:
        return None
    activation = getattr(module, "act_fn", None)
    return _ACTIVATIONS.get(type(activation).__name__)


def _fits(module: torch.nn.Module, hidden_states: torch.Tensor) -> bool:
    """Whether the weights lie as the kernel takes them and no gradient is wanted."""
    if not (getattr(module, "has_gate", False) and getattr(module, "is_concatenated", False)):
        return False
    if any(getattr(module, other, True) for other in ("has_bias", "is_transposed")):
        return False
    if getattr(module, "has_post_expert_norm", False):
        return False
    gate_up, down = getattr(module, "gate_up_proj", None), getattr(module, "down_proj", None)
    for weight in (gate_up, down):
        if not isinstance(weight, torch.Tensor) or type(weight) not in (torch.Tensor, torch.nn.Parameter):
            return False
        if weight.dim() != 3 or weight.dtype != hidden_states.dtype or weight.device != hidden_states.device:
            return False
        if torch.is_grad_enabled() and weight.requires_grad:
            return False
    return hidden_states.dim() == 2 and not (torch.is_grad_enabled() and hidden_states.requires_grad)
