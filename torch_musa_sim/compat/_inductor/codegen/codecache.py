"""What Inductor keeps of compiled code."""

from typing import Any, ClassVar

from torch._inductor import codecache
from torch._inductor.codecache import get_hash, write

from ..._refused import NO_AOT

__all__ = ["AotCodeCompiler", "MusaKernelParamCache", "get_cpp_wrapper_mubin_path_name", "get_hash"]


def get_cpp_wrapper_mubin_path_name() -> str:
    """The key under which a kernel's parameters name the file of its binary."""
    return "mubin_path"


class MusaKernelParamCache:
    """Parameters of kernels by name, with the file of each kernel's binary."""

    cache: ClassVar[dict[str, dict[str, Any]]] = {}
    cache_clear = staticmethod(cache.clear)

    @classmethod
    def set(cls, key: str, params: dict[str, Any], cubin: bytes) -> None:
        """Writes the binary into Inductor's cache and keeps the parameters."""
        _, path = write(cubin, "mubin", hash_type="cubin")
        cls.cache[key] = {**params, get_cpp_wrapper_mubin_path_name(): path}

    @classmethod
    def get(cls, key: str) -> dict[str, Any] | None:
        """The parameters of a kernel; None for one that isn't known."""
        return cls.cache.get(key)


class AotCodeCompiler:
    """Compiles the code of a graph ahead of time: torch's compiler for the cpu; musa is refused."""

    @classmethod
    def compile(
        cls,
        graph: Any,
        wrapper_code: str,
        kernel_code: str,
        serialized_extern_kernel_nodes: str | None,
        *,
        device_type: str,
        additional_files: list[str],
    ) -> Any:
        """As torch's `AotCodeCompiler.compile`; raises NotImplementedError for musa."""
        if device_type == "musa":
            raise NotImplementedError(f"AotCodeCompiler.compile: {NO_AOT}")
        return codecache.AotCodeCompiler.compile(
            graph,
            wrapper_code,
            kernel_code,
            serialized_extern_kernel_nodes,
            device_type=device_type,
            additional_files=additional_files,
        )
