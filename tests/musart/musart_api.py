"""The runtime's C API through ctypes, for tests. Imports no torch.

A failing call raises MusaError with the status's name and the runtime's sentence.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_ubyte,
    c_uint,
    c_void_p,
)
from pathlib import Path

H2H, H2D, D2H, D2D, DEFAULT = range(5)
NON_BLOCKING = 1
DISABLE_TIMING = 2
FP64, FP32, TF32, FP16, BF16, FP8, INT8, FP4, INT32 = range(9)


def library_path() -> Path:
    """Of the installed package, or what MUSART_LIBRARY names."""
    named = os.environ.get("MUSART_LIBRARY")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("torch_musa_sim")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("torch_musa_sim is not installed and MUSART_LIBRARY is not set")
    return Path(next(iter(spec.submodule_search_locations))) / "lib" / "libmusart.so"


class DeviceProp(Structure):
    _fields_ = [
        ("name", c_char * 256),
        ("uuid", c_ubyte * 16),
        ("total_memory", c_size_t),
        ("shared_per_block", c_size_t),
        ("shared_per_multiprocessor", c_size_t),
        ("registers_per_block", c_int),
        ("registers_per_multiprocessor", c_int),
        ("warp_size", c_int),
        ("threads_per_block", c_int),
        ("threads_per_multiprocessor", c_int),
        ("threads_dim", c_int * 3),
        ("grid_size", c_int * 3),
        ("clock_rate", c_int),
        ("major", c_int),
        ("minor", c_int),
        ("multiprocessors", c_int),
        ("memory_clock_rate", c_int),
        ("memory_bus_width", c_int),
        ("l2_cache", c_int),
        ("async_engines", c_int),
        ("concurrent_kernels", c_int),
        ("integrated", c_int),
        ("multi_gpu_board", c_int),
        ("pci_bus", c_int),
        ("pci_device", c_int),
        ("pci_domain", c_int),
    ]


class PointerAttributes(Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("device_pointer", c_void_p), ("host_pointer", c_void_p)]


class Arena(Structure):
    _fields_ = [
        ("base", c_size_t),
        ("alias_base", c_size_t),
        ("alias_distance", c_int64),
        ("stride", c_size_t),
        ("cards", c_int),
    ]


class CardFigures(Structure):
    _fields_ = [
        ("model", c_char * 32),
        ("memory", c_size_t),
        ("peak", c_double * 9),
        ("bandwidth", c_double),
        ("host_link", c_double),
        ("host_link_back", c_double),
        ("host_link_pageable", c_double),
        ("host_link_pageable_back", c_double),
        ("card_link", c_double),
        ("launch_ns", c_int64),
        ("sync_ns", c_int64),
        ("alloc_ns", c_int64),
        ("poll_ns", c_int64),
        ("kernel_ns", c_int64),
        ("copy_ns", c_int64),
    ]


class Cost(Structure):
    _fields_ = [("flops", c_double), ("bytes", c_double), ("dtype", c_int)]


class Span(Structure):
    _fields_ = [("start_ns", c_int64), ("end_ns", c_int64)]


class KernelArgs(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("count", c_int),
        ("ranges", POINTER(c_void_p)),
        ("bytes", POINTER(c_size_t)),
        ("written", POINTER(c_ubyte)),
        ("cost", Cost),
    ]


HostKernel = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(KernelArgs), c_void_p)


class Setting(Structure):
    _fields_ = [("name", c_char_p), ("accepted", c_char_p), ("default", c_char_p), ("about", c_char_p)]


class MusaError(RuntimeError):
    """A call that didn't return musaSuccess."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail


lib = ctypes.CDLL(str(library_path()))

# Every function that returns a status, with its argument types.
_STATUS_CALLS: dict[str, list[object]] = {
    "musaSimInit": [],
    "musaSimCheckSettings": [],
    "musaGetDeviceCount": [POINTER(c_int)],
    "musaSetDevice": [c_int],
    "musaGetDevice": [POINTER(c_int)],
    "musaGetDeviceProperties": [POINTER(DeviceProp), c_int],
    "musaSimGetCard": [c_int, POINTER(POINTER(CardFigures))],
    "musaDeviceCanAccessPeer": [POINTER(c_int), c_int, c_int],
    "musaDeviceEnablePeerAccess": [c_int, c_uint],
    "musaDeviceDisablePeerAccess": [c_int],
    "musaDeviceGetStreamPriorityRange": [POINTER(c_int), POINTER(c_int)],
    "musaDeviceSynchronize": [],
    "musaMalloc": [POINTER(c_void_p), c_size_t],
    "musaFree": [c_void_p],
    "musaMemGetInfo": [POINTER(c_size_t), POINTER(c_size_t)],
    "musaMallocHost": [POINTER(c_void_p), c_size_t],
    "musaFreeHost": [c_void_p],
    "musaHostRegister": [c_void_p, c_size_t, c_uint],
    "musaHostUnregister": [c_void_p],
    "musaPointerGetAttributes": [POINTER(PointerAttributes), c_void_p],
    "musaMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
    "musaMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "musaMemcpyPeerAsync": [c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p],
    "musaMemset": [c_void_p, c_int, c_size_t],
    "musaMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "musaSimMallocShareable": [POINTER(c_void_p), c_size_t, POINTER(c_int)],
    "musaStreamCreate": [POINTER(c_void_p)],
    "musaStreamCreateWithFlags": [POINTER(c_void_p), c_uint],
    "musaStreamCreateWithPriority": [POINTER(c_void_p), c_uint, c_int],
    "musaStreamDestroy": [c_void_p],
    "musaStreamGetPriority": [c_void_p, POINTER(c_int)],
    "musaStreamGetFlags": [c_void_p, POINTER(c_uint)],
    "musaStreamSynchronize": [c_void_p],
    "musaStreamQuery": [c_void_p],
    "musaStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "musaEventCreate": [POINTER(c_void_p)],
    "musaEventCreateWithFlags": [POINTER(c_void_p), c_uint],
    "musaEventDestroy": [c_void_p],
    "musaEventRecord": [c_void_p, c_void_p],
    "musaEventQuery": [c_void_p],
    "musaEventSynchronize": [c_void_p],
    "musaEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "musaSimEventElapsedNs": [POINTER(c_int64), c_void_p, c_void_p],
    "musaSimLaunch": [c_void_p, POINTER(Cost), POINTER(Span)],
    "musaLaunchHostKernel": [HostKernel, POINTER(KernelArgs), c_void_p, c_void_p],
    "musaSimLaunchCopy": [c_void_p, c_int, c_int, c_size_t, c_int, POINTER(Span)],
    "musaSimDefaultStream": [c_int, POINTER(c_void_p)],
    "musaSimAccess": [c_void_p, c_void_p, c_size_t, c_int, c_char_p],
    "musaSimHostRead": [c_void_p, c_size_t, c_char_p],
    "musaSimEventPassed": [c_void_p, c_int],
    "musaSimStreamWaitStream": [c_void_p, c_void_p],
}
for _name, _types in _STATUS_CALLS.items():
    getattr(lib, _name).argtypes = _types
    getattr(lib, _name).restype = c_int
for _name, _types, _result in (
    ("musaGetErrorName", [c_int], c_char_p),
    ("musaGetErrorString", [c_int], c_char_p),
    ("musaSimGetLastErrorDetail", [], c_char_p),
    ("musaSimHostClock", [], c_int64),
    ("musaSimHostAdvance", [c_int64], None),
    ("musaSimStreamTail", [c_void_p], c_int64),
    ("musaSimStreamDevice", [c_void_p], c_int),
    ("musaSimStreamId", [c_void_p], c_int64),
    ("musaSimStreamIsAlive", [c_void_p], c_int),
    ("musaSimKernelNs", [POINTER(CardFigures), POINTER(Cost)], c_int64),
    ("musaSimSettingCount", [], c_int),
    ("musaSimSettingAt", [c_int], POINTER(Setting)),
    ("musaSimSettingValue", [c_char_p], c_char_p),
    ("musaSimSettingFlag", [c_char_p], c_int),
    ("musaSimSettingInt", [c_char_p], c_int64),
    ("musaSimSettingBytes", [c_char_p], c_int64),
    ("musaSimBlockTaken", [c_void_p, c_size_t, c_void_p], None),
    ("musaSimBlockFreed", [c_void_p, c_size_t], None),
    ("musaSimBlockSettled", [c_void_p, c_size_t, c_void_p], None),
):
    getattr(lib, _name).argtypes = _types
    getattr(lib, _name).restype = _result


def error_name(status: int) -> str:
    return lib.musaGetErrorName(status).decode()


def call(name: str, *arguments: object) -> None:
    """Raises MusaError unless the call returns musaSuccess."""
    status = getattr(lib, name)(*arguments)
    if status != 0:
        raise MusaError(error_name(status), lib.musaSimGetLastErrorDetail().decode())


def device_count() -> int:
    count = c_int(-1)
    call("musaGetDeviceCount", byref(count))
    return count.value


def set_device(device: int) -> None:
    call("musaSetDevice", device)


def properties(device: int = 0) -> DeviceProp:
    prop = DeviceProp()
    call("musaGetDeviceProperties", byref(prop), device)
    return prop


def card(device: int = 0) -> CardFigures:
    figures = POINTER(CardFigures)()
    call("musaSimGetCard", device, byref(figures))
    return figures.contents


def arena() -> Arena:
    return Arena.in_dll(lib, "musaSimArenaInfo")


def malloc(size: int) -> int:
    pointer = c_void_p()
    call("musaMalloc", byref(pointer), size)
    return pointer.value or 0


def malloc_shareable(size: int) -> tuple[int, int]:
    pointer, fd = c_void_p(), c_int()
    call("musaSimMallocShareable", byref(pointer), size, byref(fd))
    return pointer.value or 0, fd.value


def free(pointer: int) -> None:
    call("musaFree", pointer)


def malloc_host(size: int) -> int:
    pointer = c_void_p()
    call("musaMallocHost", byref(pointer), size)
    return pointer.value or 0


def free_host(pointer: int) -> None:
    call("musaFreeHost", pointer)


def host_register(pointer: int, size: int, flags: int = 0) -> None:
    call("musaHostRegister", pointer, size, flags)


def host_unregister(pointer: int) -> None:
    call("musaHostUnregister", pointer)


def stream_is_alive(handle: int) -> bool:
    return bool(lib.musaSimStreamIsAlive(handle))


def mem_info() -> tuple[int, int]:
    free_bytes, total = c_size_t(), c_size_t()
    call("musaMemGetInfo", byref(free_bytes), byref(total))
    return free_bytes.value, total.value


def attributes(pointer: int) -> PointerAttributes:
    found = PointerAttributes()
    call("musaPointerGetAttributes", byref(found), pointer)
    return found


def upload(pointer: int, data: bytes) -> None:
    call("musaMemcpy", pointer, ctypes.cast(data, c_void_p), len(data), H2D)


def download(pointer: int, size: int) -> bytes:
    data = ctypes.create_string_buffer(size)
    call("musaMemcpy", ctypes.addressof(data), pointer, size, D2H)
    return data.raw


def memset(pointer: int, value: int, size: int) -> None:
    call("musaMemset", pointer, value, size)


def touch(pointer: int, size: int) -> None:
    """Writes through the alias, as a kernel does."""
    ctypes.memset(pointer + arena().alias_distance, 1, size)


def stream(flags: int = NON_BLOCKING, priority: int = 0) -> int:
    handle = c_void_p()
    call("musaStreamCreateWithPriority", byref(handle), flags, priority)
    assert handle.value
    return handle.value


def default_stream(device: int = 0) -> int:
    handle = c_void_p()
    call("musaSimDefaultStream", device, byref(handle))
    assert handle.value
    return handle.value


def event(flags: int = 0) -> int:
    handle = c_void_p()
    call("musaEventCreateWithFlags", byref(handle), flags)
    assert handle.value
    return handle.value


def record(event_handle: int, stream_handle: int | None = None) -> None:
    call("musaEventRecord", event_handle, stream_handle)


def wait_event(stream_handle: int | None, event_handle: int) -> None:
    call("musaStreamWaitEvent", stream_handle, event_handle, 0)


def elapsed_ns(start: int, end: int) -> int:
    nanoseconds = c_int64()
    call("musaSimEventElapsedNs", byref(nanoseconds), start, end)
    return nanoseconds.value


def launch(stream_handle: int | None = None, flops: float = 0, bytes: float = 0, dtype: int = FP32) -> tuple[int, int]:
    """(start, end) of one kernel in virtual nanoseconds."""
    span = Span()
    call("musaSimLaunch", stream_handle, byref(Cost(flops, bytes, dtype)), byref(span))
    return span.start_ns, span.end_ns


def launch_host_kernel(
    kernel: Callable[..., None],
    ranges: list[tuple[int | None, int]],
    stream_handle: int | None = None,
    written: list[int] | None = None,
    user: int | None = None,
    cost: Cost | None = None,
) -> None:
    """`kernel(pointers, args, user)` on (device address, bytes) of each range; `written` None: all of them."""
    count = len(ranges)
    args = KernelArgs(
        b"test",
        count,
        (c_void_p * count)(*(pointer for pointer, _ in ranges)),
        (c_size_t * count)(*(size for _, size in ranges)),
        None if written is None else (c_ubyte * count)(*written),
        cost or Cost(0, 0, FP32),
    )
    function = kernel if isinstance(kernel, HostKernel) else HostKernel(kernel)
    call("musaLaunchHostKernel", function, byref(args), user, stream_handle)


def launch_copy(stream_handle: int | None, to: int, source: int, size: int, pinned: bool = True) -> tuple[int, int]:
    span = Span()
    call("musaSimLaunchCopy", stream_handle, to, source, size, int(pinned), byref(span))
    return span.start_ns, span.end_ns


def write(stream_handle: int | None, pointer: int, size: int, op: str = "write") -> None:
    call("musaSimAccess", stream_handle, pointer, size, 1, op.encode())


def read(stream_handle: int | None, pointer: int, size: int, op: str = "read") -> None:
    call("musaSimAccess", stream_handle, pointer, size, 0, op.encode())


def copy_async(to: int, source: int, size: int, stream_handle: int | None) -> None:
    call("musaMemcpyAsync", to, source, size, DEFAULT, stream_handle)


def host_clock() -> int:
    return lib.musaSimHostClock()


def tail(stream_handle: int | None = None) -> int:
    return lib.musaSimStreamTail(stream_handle)


def setting(name: str) -> str | None:
    value = lib.musaSimSettingValue(name.encode())
    return None if value is None else value.decode()
