"""The one place where the device is registered with torch, in the order that torch needs."""

import atexit
import sys

import torch

from torch_musa_sim import _build_info, _real_package

_registered = False


def register() -> None:
    """Registers the device; a second call does nothing.

    Raises ImportError, in one sentence, when this process can't have the device: another torch than the native
    libraries were built against, the real torch_musa beside us, or another out-of-tree backend that was first.
    """
    global _registered
    if _registered:
        return
    _refuse_other_torch()
    _real_package.refuse()
    _refuse_other_backend()
    from torch_musa_sim import _C  # loads the libraries; native kernels, guard and hooks register themselves

    _C._register()
    atexit.register(_C._settle_autograd_threads)  # or a clean script could end with an abort
    torch.utils.rename_privateuse1_backend("musa")
    from torch_musa_sim import adapters, ao, compile, musa
    from torch_musa_sim.musa import fused_optimizers, peer

    fused_optimizers.define()
    torch._register_device_module("musa", musa)
    package = musa.__name__ + "."
    for name in [name for name in sys.modules if name.startswith(package)]:
        # `import torch.musa.amp` must find the module that is already there
        sys.modules["torch.musa." + name.removeprefix(package)] = sys.modules[name]
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _teach_dlpack()
    musa.set_attributes()
    musa.profiler.set_profiler_attributes()
    compile.install()
    adapters.install()
    ao.register_intrinsic_modules()
    peer.follow_if_asked()
    torch.version.musa = str(_C._runtime_version())  # type: ignore[attr-defined]
    _registered = True
    musa.op_debug.start_if_asked()


def _minor_version(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _refuse_other_torch() -> None:
    built, running = _build_info.TORCH_VERSION, str(torch.__version__)
    if _minor_version(built) != _minor_version(running):
        raise ImportError(
            f"torch_musa_sim was built against torch {built} and can't be loaded into torch {running}; install "
            f"torch {_minor_version(built)} or build torch_musa_sim again in this environment."
        )


def _refuse_other_backend() -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "musa"):
        raise ImportError(
            f"the out-of-tree backend {name!r} is already registered in this process and torch has room for one; use "
            "torch_musa_sim in an environment without it."
        )


def _teach_dlpack() -> None:
    """`Tensor.__dlpack_device__` of torch 2.13 doesn't know a renamed backend."""
    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self: torch.Tensor) -> tuple[object, int]:
        if torch.overrides.has_torch_function_unary(self) or self.device.type != "musa":
            return original(self)
        from torch.utils.dlpack import DLDeviceType

        return (DLDeviceType.kDLExtDev, self.device.index)

    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign, assignment]
