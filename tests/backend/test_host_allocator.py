"""Page-locked host memory behind pin_memory."""

from __future__ import annotations

import pytest
import torch

from torch_musa_sim import _C


@pytest.fixture(autouse=True)
def started() -> None:
    torch.empty(1, device="musa")


def test_pin_memory_copies_into_page_locked_memory() -> None:
    x = torch.arange(1000.0)
    pinned = x.pin_memory()
    assert (x.is_pinned(), pinned.is_pinned(), pinned.device.type) == (False, True, "cpu")
    assert torch.equal(x, pinned)
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()


def test_every_address_inside_counts_as_pinned() -> None:
    pinned = torch.empty(10_000, pin_memory=True)
    assert all(part.is_pinned() for part in (pinned, pinned[9_999:], pinned[5_000:6_000]))
    assert not torch.empty(10_000)[5_000:].is_pinned()


def test_a_freed_block_is_used_again() -> None:
    addresses = set()
    for _ in range(20):
        addresses.add(torch.empty(3000, dtype=torch.uint8, pin_memory=True).data_ptr())
    assert len(addresses) == 1


def test_a_block_still_being_copied_from_is_not_used_again() -> None:
    side = torch.musa.Stream()
    cached = [torch.empty(70_000, pin_memory=True) for _ in range(2)]  # page-locking more takes time on the clock
    del cached
    pinned = torch.full((70_000,), 3.0).pin_memory()
    address = pinned.data_ptr()
    with torch.musa.stream(side):
        torch.musa._sleep(50_000_000)
        on_card = pinned.to("musa", non_blocking=True)
    del pinned
    before = _C._host_clock_ns()
    other = torch.empty(70_000, pin_memory=True)
    assert other.data_ptr() != address
    assert _C._host_clock_ns() == before  # asking whether the copy is done costs nothing
    side.synchronize()
    assert torch.empty(70_000, pin_memory=True).data_ptr() == address
    assert on_card.sum().item() == 210_000


def test_pinned_memory_of_many_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def fill(seed: int) -> bool:
        good = True
        for i in range(200):
            x = torch.full((100 + 37 * ((seed + i) % 50),), float(seed)).pin_memory()
            good = good and x.is_pinned() and bool((x == seed).all())
        return good

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(fill, range(4)))
