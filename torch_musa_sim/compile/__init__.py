"""torch.compile on musa: what torch's compiler must learn about the device, taught when the compiler is loaded.

Importing this package loads neither Dynamo nor Inductor; `install` only leaves word with Python's import system.
"""

import sys
from types import ModuleType

from torch_musa_sim._imports import when_imported


def _on_device_interface(module: ModuleType) -> None:
    from torch_musa_sim.compile import device_interface

    device_interface.register(module)


def _on_backend_registry(module: ModuleType) -> None:
    from torch_musa_sim.compile import musagraphs

    musagraphs.register(module)


def _on_inductor(module: ModuleType) -> None:
    from torch_musa_sim.compile import inductor

    inductor.install(module)


def _on_cpp_backend(module: ModuleType) -> None:
    from torch_musa_sim.compile import inductor

    inductor.register_backend(module)


_TEACHERS = {
    "torch._dynamo.device_interface": _on_device_interface,
    "torch._dynamo.backends.registry": _on_backend_registry,
    "torch._inductor.compile_fx": _on_inductor,
    "torch._inductor.codegen.cpp": _on_cpp_backend,
}


def install() -> None:
    """Teaches each part of the compiler at its import, or at once where it is loaded already. To be called once."""
    for name, teach in _TEACHERS.items():
        if name in sys.modules:
            teach(sys.modules[name])
        else:
            when_imported(name, teach)
