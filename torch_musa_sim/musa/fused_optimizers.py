"""The operators `torch.ops.musa._fused_adam_` and `_fused_adamw_`, which exported programs of the real stack name."""

from typing import Any

import torch

_TAIL = (
    "Tensor(d!)[] exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, {lr} lr, float beta1, "
    "float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, "
    "Tensor? found_inf=None) -> ()"
)
_library: torch.library.Library | None = None


def define() -> None:
    """Defines the operators; a second call does nothing. They compute what aten's operators of the same name do."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("musa", "FRAGMENT")
    for name, aten in (("_fused_adam_", torch._fused_adam_), ("_fused_adamw_", torch._fused_adamw_)):
        for overload, rate in (("", "float"), (".tensor_lr", "Tensor")):
            head = f"{name}{overload}(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, "
            _library.define(head + _TAIL.format(lr=rate))

            def run(*args: Any, _aten: Any = aten, **kwargs: Any) -> None:
                _aten(*args, **kwargs)

            _library.impl(f"{name}{overload}", run, "CompositeExplicitAutograd")
