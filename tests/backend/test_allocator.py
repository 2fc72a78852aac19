"""The caching allocator of card memory: sizes, pools, splitting, peaks, caching, and what torch.accelerator reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

KIB, MIB = 1 << 10, 1 << 20
CARD = 5  # no other test allocates here, so that every figure is exact


def stats() -> dict[str, Any]:
    return torch.musa.memory_stats(CARD)


def allocated() -> int:
    return torch.accelerator.memory_allocated(CARD)


def reserved() -> int:
    return torch.accelerator.memory_reserved(CARD)


def tensor(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"musa:{CARD}")


@pytest.fixture(autouse=True)
def empty_card() -> Iterator[None]:
    torch.accelerator.empty_cache()
    assert (allocated(), reserved()) == (0, 0)
    torch.accelerator.reset_peak_memory_stats(CARD)
    torch.accelerator.reset_accumulated_memory_stats(CARD)
    yield
    torch.accelerator.empty_cache()
    assert (allocated(), reserved()) == (0, 0)


@pytest.mark.parametrize("mib", [2, 5, 8, 15, 64])
def test_a_tensor_of_whole_mebibytes_adds_exactly_its_size(mib: int) -> None:
    keep = [tensor(mib * MIB) for _ in range(3)]
    del keep[1]
    keep.append(tensor(mib * MIB))
    assert allocated() == 3 * mib * MIB


@pytest.mark.parametrize(("request_", "rounded"), [(1, 512), (512, 512), (513, 1024), (70_000, 70_144)])
def test_sizes_are_rounded_to_512_bytes(request_: int, rounded: int) -> None:
    x = tensor(request_)
    assert allocated() == rounded
    assert stats()["requested_bytes.all.current"] == request_
    assert x.data_ptr() % 512 == 0


def test_an_empty_tensor_takes_no_memory() -> None:
    x = torch.empty(0, device=f"musa:{CARD}")
    assert (x.data_ptr(), x.device.index, reserved()) == (0, CARD, 0)


@pytest.mark.parametrize(
    ("nbytes", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (21 * MIB, 22 * MIB),
    ],
)
def test_segment_sizes(nbytes: int, segment: int) -> None:
    x = tensor(nbytes)
    assert reserved() == segment
    pool = "small_pool" if nbytes <= MIB else "large_pool"
    assert stats()[f"segment.{pool}.current"] == stats()["segment.all.current"] == 1
    assert stats()[f"allocated_bytes.{pool}.current"] == allocated() >= x.numel()


def test_freed_neighbours_merge() -> None:
    pieces = [tensor(5 * MIB) for _ in range(4)]
    assert reserved() == 20 * MIB
    first = min(x.data_ptr() for x in pieces)
    while pieces:
        pieces.pop(len(pieces) // 2)
    whole = tensor(20 * MIB)
    assert (whole.data_ptr(), reserved()) == (first, 20 * MIB)


def test_the_smallest_block_that_fits_is_taken() -> None:
    large, small = tensor(30 * MIB), tensor(24 * MIB)
    large_at, small_at = large.data_ptr(), small.data_ptr()
    del large, small
    assert tensor(23 * MIB).data_ptr() == small_at
    assert tensor(28 * MIB).data_ptr() == large_at


@pytest.mark.parametrize("nbytes", [256, 64 * KIB, 500 * KIB, 3 * MIB])
def test_a_freed_block_is_used_again(nbytes: int) -> None:
    addresses = {tensor(nbytes).data_ptr() for _ in range(50)}
    assert len(addresses) == 1


def test_peaks_are_exact() -> None:
    peaks = []
    for keep in (True, False):
        torch.accelerator.reset_peak_memory_stats(CARD)
        x = None
        for i in range(1, 6):
            y = tensor(i * MIB)
            x = y if keep else None
            del y
        peaks.append(torch.accelerator.max_memory_allocated(CARD))
        del x
    assert peaks == [9 * MIB, 5 * MIB]


def test_peak_over_both_pools_counts_what_was_alive_together() -> None:
    small, large = tensor(MIB), tensor(4 * MIB)
    del large
    more = [tensor(MIB) for _ in range(2)]
    assert torch.accelerator.max_memory_allocated(CARD) == 5 * MIB
    assert stats()["allocated_bytes.small_pool.peak"] == 3 * MIB
    assert stats()["allocated_bytes.large_pool.peak"] == 4 * MIB
    del small, more


def test_accumulated_figures_add_up_and_reset() -> None:
    keep = tensor(1000)
    for _ in range(10):
        tensor(2000)
    tensor(3 * MIB)
    now = stats()
    assert (now["allocation.all.allocated"], now["allocation.all.freed"]) == (12, 11)
    assert now["allocation.small_pool.allocated"] == 11
    assert now["allocated_bytes.all.allocated"] == 1024 + 10 * 2048 + 3 * MIB
    assert now["allocated_bytes.all.freed"] == 10 * 2048 + 3 * MIB
    assert now["requested_bytes.all.allocated"] == 1000 + 10 * 2000 + 3 * MIB
    assert now["active.all.allocated"] - now["active.all.freed"] == now["active.all.current"] == 1
    assert now["num_device_alloc"] == 2
    torch.accelerator.reset_accumulated_memory_stats(CARD)
    del keep
    now = stats()
    assert (now["allocation.all.allocated"], now["allocation.all.freed"]) == (0, 1)
    assert (now["allocated_bytes.all.freed"], now["num_device_alloc"]) == (1024, 0)


def test_views_keep_the_block() -> None:
    x = tensor(8 * MIB)
    row = x.view(2, -1)[0]
    del x
    assert allocated() == 8 * MIB
    del row
    assert allocated() == 0


def test_empty_cache_keeps_segments_in_use() -> None:
    x, y = tensor(30 * MIB), tensor(40 * MIB)
    del y
    assert reserved() == 70 * MIB
    torch.accelerator.empty_cache()
    assert reserved() == 30 * MIB
    assert stats()["num_device_free"] == 1
    del x


def test_mem_get_info_follows_reserved_memory() -> None:
    free, total = torch.accelerator.get_memory_info(CARD)
    x = tensor(64 * MIB)
    assert torch.accelerator.get_memory_info(CARD) == (free - 64 * MIB, total)
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info(CARD) == (free, total)


def test_cards_are_counted_apart() -> None:
    before = torch.accelerator.memory_allocated(CARD + 1)
    x = torch.empty(MIB, dtype=torch.uint8, device=f"musa:{CARD + 1}")
    assert torch.accelerator.memory_allocated(CARD + 1) == before + MIB
    assert allocated() == 0
    del x


def test_statistics_of_a_card_that_is_not_there_are_refused() -> None:
    with pytest.raises(RuntimeError, match="there is no card 99"):
        torch._C._accelerator_getDeviceStats(99)


def test_snapshot_covers_every_reserved_byte() -> None:
    keep = [tensor(n) for n in (700, 90 * KIB, 600 * KIB, 3 * MIB, 25 * MIB)]
    del keep[1], keep[2]
    segments = [s for s in torch.musa.memory_snapshot() if s["device"] == CARD]
    assert sum(s["total_size"] for s in segments) == reserved()
    for segment in segments:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
    assert sum(s["allocated_size"] for s in segments) == allocated()
    addresses = {b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    assert addresses == {x.data_ptr() for x in keep}
    del keep


def test_a_memory_fraction_limits_this_process() -> None:
    total = torch.accelerator.get_memory_info(CARD)[1]
    torch.musa.set_per_process_memory_fraction(100 * MIB / total, CARD)
    try:
        x = tensor(60 * MIB)
        with pytest.raises(torch.OutOfMemoryError, match="allowed to this process by its memory fraction"):
            tensor(60 * MIB)
        assert stats()["num_ooms"] == 1
        y = tensor(39 * MIB)  # 40 MiB fits to the byte
        del x, y
    finally:
        torch.musa.set_per_process_memory_fraction(1.0, CARD)
    assert tensor(200 * MIB).numel() == 200 * MIB


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_a_memory_fraction_outside_0_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        torch.musa.set_per_process_memory_fraction(fraction, CARD)


def test_an_absurd_size_is_out_of_memory_not_an_overflow() -> None:
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        tensor((1 << 62) + 12345)


def test_a_thread_that_ends_gives_its_bin_back() -> None:
    pieces_in_bin = []

    def churn() -> None:
        pieces = [tensor(128 * KIB) for _ in range(16)]  # one small segment, full
        del pieces
        pieces_in_bin.append(stats()["inactive_split.small_pool.current"])

    thread = threading.Thread(target=churn)
    thread.start()
    thread.join()
    assert pieces_in_bin == [16]
    deadline = time.monotonic() + 10
    while stats()["inactive_split.small_pool.current"] and time.monotonic() < deadline:
        time.sleep(0.01)  # join() returns shortly before the thread has really ended
    assert stats()["inactive_split.small_pool.current"] == 0  # merged into the whole segment
    assert reserved() == 2 * MIB


def test_blocks_freed_by_another_thread_do_not_grow_memory() -> None:
    queue: list[torch.Tensor] = []
    ready = threading.Condition()
    sizes = [512, 4 * KIB, 60 * KIB, 200 * KIB]
    at_most_alive = [tensor(max(sizes)) for _ in range(24)]
    del at_most_alive
    before = reserved()

    def consume() -> None:
        for _ in range(4000):
            with ready:
                ready.wait_for(lambda: bool(queue))
                x = queue.pop(0)
                ready.notify()
            del x

    consumer = threading.Thread(target=consume)
    consumer.start()
    for i in range(4000):
        x = tensor(sizes[i % len(sizes)])
        with ready:
            ready.wait_for(lambda: len(queue) < 20)
            queue.append(x)
            ready.notify()
        del x
    consumer.join()
    assert (allocated(), reserved()) == (0, before)


def test_training_keeps_reserved_memory_constant() -> None:
    torch.manual_seed(0)
    device = f"musa:{CARD}"
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(32, 64, device=device), torch.randint(0, 10, (32,), device=device)
    seen = set()
    for step in range(1000):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 10:
            seen.add((allocated(), reserved()))
    assert len(seen) == 1
    assert loss.item() < 2.0
    del model, optimizer, x, y, loss
