"""torch.optim: every optimizer, with every implementation it has, makes the CPU's steps."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db, optims
from torch.testing._internal.common_utils import TestCase

from .device import DEVICE
from .harness import Check, check_samples
from .transfer import Transfer

STEPS = 4
SHAPES = [(4, 5), (3, 2), (6, 1)]  # matrices: Muon takes nothing else


def gradients(step: int, dtype: torch.dtype, sparse: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]
    return [g.to_sparse() for g in drawn] if sparse else drawn


def plain(state: Any) -> Any:
    """State of an optimizer with the step counters on the CPU: where a counter lives depends on the implementation."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return float(state) if isinstance(state, torch.Tensor) and state.dim() == 0 else state


def optimizer_checks(info: OptimizerInfo, dtype: torch.dtype, implementation: dict[str, bool]) -> Iterator[Check]:
    for sample in info.optim_inputs_func(device="cpu"):
        if any(flag in sample.kwargs for flag in ("foreach", "fused", "capturable", "differentiable")):
            continue

        def check(move: Transfer, sample=sample):
            kwargs = {**sample.kwargs, **implementation}
            if move.device.type == "cpu":
                kwargs.pop("capturable", None)  # the CPU refuses the flag; the numbers must not depend on it
                if not implementation and "foreach" in info.supported_impls:
                    kwargs["foreach"] = True  # what an accelerator takes by default
            start = torch.Generator().manual_seed(5)
            params = [torch.nn.Parameter(move(torch.randn(shape, generator=start, dtype=dtype))) for shape in SHAPES]
            optimizer = info.optim_cls(params, **kwargs)

            def closure():
                optimizer.zero_grad()
                loss = sum((p * p).sum() for p in params)
                loss.backward()
                return loss

            for step in range(STEPS):
                if info.step_requires_closure:
                    optimizer.step(closure)
                    continue
                for param, gradient in zip(
                    params, gradients(step, dtype, info.only_supports_sparse_grads), strict=True
                ):
                    param.grad = move(gradient)
                if kwargs.get("differentiable"):
                    with torch.no_grad():
                        optimizer.step()
                else:
                    optimizer.step()
            return [[p.detach() for p in params], plain(dict(optimizer.state_dict()["state"]))]

        yield check


def implementations(info: OptimizerInfo) -> list[dict[str, bool]]:
    flags = [{flag: True} for flag in info.supported_impls if flag != "differentiable"]
    if "foreach" in info.supported_impls:
        flags.append({"foreach": False})
    if info.has_capturable_arg:
        flags.append({"capturable": True})
    return [{}, *flags]


class TestOptimizers(TestCase):
    @optims(optim_db, dtypes=(torch.float32, torch.float64))
    def test_optimizer(self, device, dtype, optim_info):
        for flags in implementations(optim_info):
            if flags.get("capturable") and dtype == torch.float64:
                continue  # the step counter is a float32 tensor then, on every device
            name = f"optimizer {' '.join(f'{k}={v}' for k, v in flags.items())}".strip()
            check_samples(name, optim_info.name, dtype, optimizer_checks(optim_info, dtype, flags))


instantiate_device_type_tests(TestOptimizers, globals(), only_for=(DEVICE,))
