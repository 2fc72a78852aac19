"""torch.nn modules: forward, input gradients and parameter gradients equal the CPU's."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import ModuleInfo, module_db, modules
from torch.testing._internal.common_utils import TestCase

from .compare import tensors_in
from .device import DEVICE
from .harness import Check, check_samples, cotangents, differentiable
from .transfer import Transfer


def reference_state(build: Any, forward: Any) -> dict[str, Any]:
    """Parameters and buffers every device starts from. A lazy module has them only after its first call."""
    torch.manual_seed(0)
    module = build()
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        forward(module)
    return module.state_dict()


def module_checks(info: ModuleInfo, dtype: torch.dtype, training: bool) -> Iterator[Check]:
    for sample in info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training):
        if sample.forward_input is None:
            continue
        arguments, call = sample.constructor_input, sample.forward_input

        def build(arguments=arguments):
            return info.module_cls(*arguments.args, **arguments.kwargs).to(dtype=dtype).train(training)

        def check(move: Transfer, build=build, call=call):
            state = reference_state(build, lambda m: m(*Transfer("cpu")(call.args), **Transfer("cpu")(call.kwargs)))
            module = build()
            module.load_state_dict(state)
            module.to(move.device)
            args, kwargs = move(call.args), move(call.kwargs)
            outputs = module(*args, **kwargs)
            differentiated = differentiable(outputs)
            if not differentiated:
                return [outputs, dict(module.state_dict())]
            inputs = [t for t in tensors_in([list(args), kwargs]) if t.requires_grad] + list(module.parameters())
            gradients = torch.autograd.grad(differentiated, inputs, cotangents(differentiated, move), allow_unused=True)
            return [outputs, gradients, dict(module.state_dict())]

        yield check


class TestModules(TestCase):
    @modules(module_db, allowed_dtypes=(torch.float32, torch.float64, torch.bfloat16))
    def test_module(self, device, dtype, module_info, training):
        checks = module_checks(module_info, dtype, training)
        check_samples("module", f"nn.{module_info.name.removeprefix('nn.')}", dtype, checks, strides=False)


instantiate_device_type_tests(TestModules, globals(), only_for=(DEVICE,))
