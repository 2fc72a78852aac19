"""What the cards' architecture can do, and the architectures that this build serves."""

import functools

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa.device import current_device, device_count, get_device_capability, is_available

_NATIVE_BF16 = (2, 2)  # also tf32


def _is_compiled() -> bool:
    """True: the native part of this package was built."""
    return True


def get_arch_list() -> list[str]:
    """The architectures this build serves, all of which the simulation runs alike."""
    return ["mp_21", "mp_22", "mp_31"]


def get_gencode_flags() -> str:
    """The compiler's flags for `get_arch_list`, as mcc takes them."""
    return " ".join(f"--offload-arch={arch}" for arch in get_arch_list())


def _get_musa_arch() -> int:
    """The architecture to build for, as one number such as 31: TORCH_MUSA_ARCH, else the current card's, else 0."""
    told = next(entry["value"] for entry in _C._settings() if entry["name"] == "TORCH_MUSA_ARCH")
    if told or not is_available():
        return int(told or 0)
    major, minor = get_device_capability()
    return 10 * major + minor


@functools.cache
def _check_bf16_tensor_supported(device: torch.device | str | int) -> bool:
    """True when a bfloat16 tensor can be made on the card: the oldest of them emulates the type."""
    try:
        torch.tensor([1.0], dtype=torch.bfloat16, device=device)
    except RuntimeError:
        return False
    return True


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the current card computes in bfloat16, also by emulation unless that is to be left out."""
    if not is_available():
        return False
    if get_device_capability() >= _NATIVE_BF16:
        return True
    return including_emulation and _check_bf16_tensor_supported(torch.device("musa", current_device()))


def is_tf32_supported() -> bool:
    """True when the current card multiplies float32 matrices in tf32."""
    return is_bf16_supported(including_emulation=False)


def _device_count_nvml() -> int:
    """As `device_count`: counting initialises nothing here, so that no management library is asked."""
    return device_count()
