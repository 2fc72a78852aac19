"""Choice among configurations of Triton kernels."""

from typing import Any

from torch._inductor.runtime.triton_heuristics import CachingAutotuner, DebugAutotuner

from ..._refused import NO_TRITON, refused


class MUSACachingAutotuner(CachingAutotuner):
    """Would try a kernel's configurations and keep the fastest; can't be made."""

    @refused(NO_TRITON)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the kernel and its configurations."""

    @refused(NO_TRITON)
    def save_gpu_kernel(self, stream: Any, launcher: Any) -> None:
        """Would keep the kernel's binary."""


class MUSADebugAutotuner(DebugAutotuner, MUSACachingAutotuner):
    """Would also print what each configuration costs; can't be made."""

    @refused(NO_TRITON)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes the kernel and its configurations."""


@refused(NO_TRITON)
def cached_autotune(
    size_hints: Any,
    configs: Any,
    triton_meta: Any,
    heuristic_type: Any,
    filename: str | None = None,
    inductor_meta: Any = None,
    custom_kernel: bool = False,
) -> Any:
    """Would make the decorator of a kernel that chooses its configuration."""


@refused(NO_TRITON)
def _apply_triton_heuristics_patches() -> None:
    """Would put these classes in the place of torch's."""
