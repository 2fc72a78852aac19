"""Which allocator serves the cards: the caching one, none, or one of the program's own; and memory without a tensor."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index


class _MUSAAllocator:
    """An allocator of card memory; `allocator()` is None for the caching allocator."""

    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator

    def allocator(self) -> Any:
        """What `MemPool(allocator)` takes."""
        return self._allocator


class MUSAPluggableAllocator(_MUSAAllocator):
    """Two functions of a shared library in the place of musaMalloc and musaFree.

    path_to_so_file: the library.
    alloc_fn_name: `void* alloc(ssize_t size, int device, musaStream_t stream)`; returns memory of that card at a
        multiple of 512 bytes, or NULL when there is none left.
    free_fn_name: `void free(void* pointer, ssize_t size, int device, musaStream_t stream)`.

    Raises OSError when the library can't be loaded, AttributeError when it has no such function.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        super().__init__(_C._custom_allocator(_address(library, alloc_fn_name), _address(library, free_fn_name)))


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    if address is None:
        raise AttributeError(f"the function {name!r} has no address")
    return address


def change_current_allocator(allocator: _MUSAAllocator) -> None:
    """Lets `allocator` serve every allocation, without a cache. Raises RuntimeError once memory was allocated."""
    _C._change_current_allocator(allocator.allocator())


def _get_current_allocator() -> _MUSAAllocator:
    """The allocator in use."""
    return _MUSAAllocator(_C._current_allocator())


def get_allocator_backend() -> str:
    """The allocator in use: "native", or "pluggable" after `change_current_allocator`."""
    return "native" if _C._current_allocator() is None else "pluggable"


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: Any = None) -> int:
    """The address of `size` new bytes on a card, for another library; give them back by `caching_allocator_delete`.

    stream: where the memory is used first, a `Stream` or its handle (default: the current stream of the card).
    """
    index = _get_device_index(device, optional=True)
    if stream is None:
        stream = torch.accelerator.current_stream(index)
    if isinstance(stream, torch.Stream):
        stream = _C._stream_handle(stream.stream_id, stream.device_index)
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"a stream is a torch.musa.Stream or the int of its handle, but got {stream!r}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"the size must be a number of bytes, 0 or more, but got {size!r}")
    return _C._raw_allocate(size, index, stream)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back what `caching_allocator_alloc` returned. Raises ValueError for any other address."""
    _C._raw_free(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Off: each allocation and free goes to the card. What was cached stays so until `empty_cache`."""
    _C._enable_caching(bool(value))


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Switches the cache off inside the `with` block."""
    before = _C._is_caching_enabled()
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(before)


@contextmanager
def use_unified_cpu_allocator() -> Iterator[None]:
    """Inside the `with` block, tensors on the cpu lie in page-locked memory, which cards reach as well."""
    before = _C._is_unified_host_memory()
    _C._set_unified_host_memory(True)
    try:
        yield
    finally:
        _C._set_unified_host_memory(before)


def _set_allocator_settings(env: str) -> None:
    """Changes options of the caching allocator, written as in PYTORCH_MUSA_ALLOC_CONF.

    Raises ValueError for an unknown option or value, with those that are accepted.
    """
    _C._set_allocator_settings(env)
