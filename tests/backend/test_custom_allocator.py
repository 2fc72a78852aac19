"""Allocators of the program's own, the cache switched off, and memory without a tensor."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RunScript

import torch_musa_sim

MIB = 1 << 20
CARD = 2  # no other test allocates here without giving back
PACKAGE = Path(torch_musa_sim.__file__).parent

SOURCE = """
#include <stddef.h>
#include <sys/types.h>
typedef struct musaStream* musaStream_t;
extern "C" {
int musaMalloc(void**, size_t);
int musaFree(void*);
long allocated, freed, calls, last_device = -1;
long last_stream;
void* alloc(ssize_t size, int device, musaStream_t stream) {
  void* pointer = nullptr;
  if (musaMalloc(&pointer, size) != 0) return nullptr;
  allocated += size, ++calls, last_device = device, last_stream = (long)stream;
  return pointer;
}
void release(void* pointer, ssize_t size, int, musaStream_t) {
  freed += size;
  musaFree(pointer);
}
char host[4096];
void* host_memory(ssize_t, int, musaStream_t) { return host; }
void* odd(ssize_t size, int device, musaStream_t stream) { return (char*)alloc(size + 512, device, stream) + 8; }
void release_odd(void* pointer, ssize_t size, int device, musaStream_t stream) {
  release((char*)pointer - 8, size + 512, device, stream);
}
void keep(void*, ssize_t, int, musaStream_t) {}
void* nothing(ssize_t, int, musaStream_t) { return nullptr; }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on this machine")
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "allocator.cpp").write_text(SOURCE)
    runtime = next((PACKAGE / "lib").glob("libmusart.so*"))
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", "liballocator.so", "allocator.cpp", os.fspath(runtime)],
        cwd=folder,
        check=True,
    )
    return os.fspath(folder / "liballocator.so")


class Counts:
    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> int:
        return ctypes.c_long.in_dll(self._library, name).value


def tensor(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"musa:{CARD}")


def test_a_pool_takes_its_segments_from_the_programs_allocator(library: str) -> None:
    counts = Counts(library)
    before = counts.allocated, counts.freed
    allocator = torch.musa.MUSAPluggableAllocator(library, "alloc", "release")
    with torch.musa.device(CARD):
        pool = torch.musa.MemPool(allocator.allocator())
        assert pool.allocator is allocator.allocator()
        with torch.musa.use_mem_pool(pool):
            x = torch.ones(1000, device="musa")
            assert counts.allocated - before[0] == 2 * MIB  # one segment of the small pool
            y = torch.ones(1000, device="musa")
            assert (x + y).sum().item() == 2000
        assert (counts.calls, counts.last_device) == (1, CARD)
        assert counts.last_stream == torch.musa.current_stream().musa_stream
        z = tensor(1000)
        assert counts.allocated - before[0] == 2 * MIB
        del x, y, z, pool
    torch.musa.empty_cache()
    assert counts.freed - before[1] == 2 * MIB


@pytest.mark.parametrize(
    ("alloc", "free", "text"),
    [
        ("host_memory", "keep", "no memory of a card"),
        ("odd", "release_odd", "multiples of 512 bytes"),
    ],
)
def test_memory_that_is_not_usable_is_refused(library: str, alloc: str, free: str, text: str) -> None:
    with torch.musa.device(CARD):
        pool = torch.musa.MemPool(torch.musa.MUSAPluggableAllocator(library, alloc, free))
        with torch.musa.use_mem_pool(pool), pytest.raises(RuntimeError, match=text):
            tensor(100)
        assert tensor(100).numel() == 100


def test_an_allocator_without_memory_means_out_of_memory(library: str) -> None:
    with torch.musa.device(CARD):
        pool = torch.musa.MemPool(torch.musa.MUSAPluggableAllocator(library, "nothing", "keep"))
        with torch.musa.use_mem_pool(pool), pytest.raises(torch.OutOfMemoryError):
            tensor(100)


def test_a_function_or_library_that_is_not_there_is_refused(library: str) -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        torch.musa.MUSAPluggableAllocator(library, "no_such_function", "release")
    with pytest.raises(OSError, match="nowhere"):
        torch.musa.MUSAPluggableAllocator("/nowhere/lib.so", "alloc", "release")


def test_the_current_allocator_serves_everything_without_a_cache(library: str, run_script: RunScript) -> None:
    run_script(
        f"""
        import ctypes, torch
        counts = lambda name: ctypes.c_long.in_dll(library, name).value
        library = ctypes.CDLL({library!r})
        assert torch.musa.memory._get_current_allocator().allocator() is None
        allocator = torch.musa.MUSAPluggableAllocator({library!r}, "alloc", "release")
        torch.musa.change_current_allocator(allocator)
        assert torch.musa.memory._get_current_allocator().allocator() is allocator.allocator()
        assert torch.musa.get_allocator_backend() == "pluggable"
        x = torch.ones(1001, device="musa")
        assert counts("allocated") >= 4004
        assert counts("freed") == counts("allocated") - 4004
        assert torch.musa.memory_allocated() == torch.musa.memory_reserved() == 4096
        assert (x * 2).sum().item() == 2002
        layer = torch.nn.Linear(64, 64, device="musa")
        layer(torch.ones(2, 64, device="musa")).sum().backward()
        del x, layer
        assert counts("allocated") == counts("freed")
        assert torch.musa.memory_reserved() == 0
        """
    )


def test_the_current_allocator_can_not_be_changed_in_use(library: str) -> None:
    tensor(1)
    allocator = torch.musa.MUSAPluggableAllocator(library, "alloc", "release")
    with pytest.raises(RuntimeError, match=r"can't be changed once memory was allocated"):
        torch.musa.change_current_allocator(allocator)


def test_without_the_cache_memory_returns_at_once() -> None:
    torch.musa.empty_cache()
    cached = tensor(3 * MIB)
    held = torch.musa.memory_reserved(CARD)
    with torch.musa.caching_allocator_disabled():
        x = tensor(1000)
        assert torch.musa.memory_reserved(CARD) == held + 1024
        assert torch.musa.memory_allocated(CARD) == 3 * MIB + 1024
        del x
        assert torch.musa.memory_reserved(CARD) == held
        x = tensor(5 * MIB)
        del cached  # it came from the cache and returns there
        assert torch.musa.memory_reserved(CARD) == held + 5 * MIB
    del x  # it didn't, and doesn't
    assert torch.musa.memory_reserved(CARD) == held


def test_the_cache_can_be_switched_off_by_the_environment(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        x = torch.empty(1000, dtype=torch.uint8, device="musa")
        assert torch.musa.memory_reserved() == 1024
        y = torch.empty(5 << 20, dtype=torch.uint8, device="musa")
        side = torch.musa.Stream()
        y.record_stream(side)
        del x, y
        torch.musa.synchronize()
        torch.empty(1, device="musa")
        assert torch.musa.memory_reserved() == 0
        assert torch.musa.memory_stats()["num_device_free"] == 3
        """,
        PYTORCH_NO_MUSA_MEMORY_CACHING="1",
    )


def test_memory_without_a_tensor() -> None:
    torch.musa.empty_cache()
    before = torch.musa.memory_allocated(CARD)
    stream = torch.musa.Stream(CARD)
    addresses = [
        torch.musa.caching_allocator_alloc(1000, CARD),
        torch.musa.caching_allocator_alloc(1000, f"musa:{CARD}", stream),
        torch.musa.caching_allocator_alloc(1000, torch.device("musa", CARD), stream.musa_stream),
    ]
    assert len(set(addresses)) == 3
    assert torch.musa.memory_allocated(CARD) == before + 3072
    for address in addresses:
        torch.musa.caching_allocator_delete(address)
    assert torch.musa.memory_allocated(CARD) == before
    with pytest.raises(ValueError, match="is no block of the caching allocator"):
        torch.musa.caching_allocator_delete(addresses[0])
    with pytest.raises(TypeError, match="a stream is a"):
        torch.musa.caching_allocator_alloc(1000, CARD, "stream")
    with pytest.raises(ValueError, match="number of bytes"):
        torch.musa.caching_allocator_alloc(-1, CARD)


def test_host_tensors_in_memory_that_cards_reach() -> None:
    with torch.musa.use_unified_cpu_allocator():
        x = torch.arange(1000)
        y = x + x
    z = x + 1
    assert (x.is_pinned(), y.is_pinned(), z.is_pinned()) == (True, True, False)
    assert torch.equal(y.to("musa").cpu(), y)
    del x, y
    assert z.sum().item() == 500_500


def test_host_tensors_are_unified_by_setting(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        torch.empty(1, device="musa")
        assert torch.ones(10).is_pinned()
        """,
        PYTORCH_MUSA_ALLOC_CONF="cpu:unified",
    )


def host(key: str) -> Any:
    return torch.musa.host_memory_stats()[key]


def test_statistics_of_page_locked_memory() -> None:
    torch.empty(1, device="musa")
    torch.musa.empty_host_cache()
    torch.musa.reset_accumulated_host_memory_stats()
    torch.musa.reset_peak_host_memory_stats()
    active = host("active_bytes.current")
    x = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    assert host("active_bytes.current") == active + 4 * MIB  # a power of two
    assert (host("num_host_alloc"), host("active_requests.allocated")) == (1, 1)
    del x
    assert host("active_bytes.current") == active
    held = host("allocated_bytes.current")
    torch.musa.empty_host_cache()
    assert host("allocated_bytes.current") == held - 4 * MIB
    assert host("num_host_free") == 1
    assert host("host_alloc_time.count") == 1
    assert host("active_bytes.peak") >= active + 4 * MIB
    nested = torch.musa.host_memory_stats_as_nested_dict()
    assert set(nested) == {
        "allocations", "allocated_bytes", "active_requests", "active_bytes", "host_alloc_time", "host_free_time",
        "num_host_alloc", "num_host_free",
    }  # fmt: skip
    assert set(nested["host_alloc_time"]) == {"total", "max", "min", "count", "avg"}
