"""Card memory and streams: a block belongs to the stream it was allocated on, and waits for others that used it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torch_musa_sim import _C

MIB = 1 << 20
CARD = 5
BUSY = 50_000_000  # cycles of the card: far beyond what the host clock advances in a few calls


def tensor(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"musa:{CARD}")


def stats() -> dict[str, Any]:
    return torch.musa.memory_stats(CARD)


@pytest.fixture(autouse=True)
def quiet_card() -> Iterator[None]:
    with torch.musa.device(CARD):
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        yield
        torch.accelerator.synchronize()
        torch.accelerator.empty_cache()
        assert torch.accelerator.memory_reserved(CARD) == 0


@pytest.mark.parametrize("nbytes", [512, 300_000, 3 * MIB])
def test_a_block_is_used_again_on_its_own_stream_only(nbytes: int) -> None:
    side = torch.musa.Stream(CARD)
    x = tensor(nbytes)
    address = x.data_ptr()
    del x
    with torch.musa.stream(side):
        assert tensor(nbytes).data_ptr() != address
    assert tensor(nbytes).data_ptr() == address


@pytest.mark.parametrize("nbytes", [512, 300_000, 3 * MIB])
def test_a_recorded_block_waits_for_all_of_three_streams(nbytes: int) -> None:
    first, second = torch.musa.Stream(CARD), torch.musa.Stream(CARD)
    x = tensor(nbytes)
    address = x.data_ptr()
    for stream, cycles in ((first, BUSY), (second, 2 * BUSY)):
        with torch.musa.stream(stream):
            torch.musa._sleep(cycles)
        x.record_stream(stream)
    x.record_stream(torch.musa.current_stream(CARD))  # its own stream's order protects it anyway
    del x
    size = -(-nbytes // 512) * 512
    assert torch.accelerator.memory_allocated(CARD) == 0
    assert (stats()["active.all.current"], stats()["active_bytes.all.current"]) == (1, size)
    assert tensor(nbytes).data_ptr() != address
    first.synchronize()
    assert tensor(nbytes).data_ptr() != address
    second.synchronize()
    spare = tensor(2 * nbytes)  # a size that no bin holds: the pool looks at what is done
    assert stats()["active.all.current"] == 1
    del spare
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(CARD) == 0


def test_a_recorded_block_comes_back_when_the_streams_are_done() -> None:
    side = torch.musa.Stream(CARD)
    x = tensor(20 * MIB)
    address = x.data_ptr()
    with torch.musa.stream(side):
        torch.musa._sleep(BUSY)
    x.record_stream(side)
    del x
    side.synchronize()
    assert tensor(20 * MIB).data_ptr() == address


def test_a_block_recorded_on_an_idle_stream_is_free_at_once() -> None:
    side = torch.musa.Stream(CARD)
    x = tensor(20 * MIB)
    address = x.data_ptr()
    x.record_stream(side)
    del x
    assert tensor(20 * MIB).data_ptr() == address


def test_looking_for_finished_blocks_does_not_move_the_clock() -> None:
    side = torch.musa.Stream(CARD)
    tensor(40 * MIB)  # reserved: from here on no segment is allocated
    x = tensor(20 * MIB)
    with torch.musa.stream(side):
        torch.musa._sleep(BUSY)
    x.record_stream(side)
    del x
    tensor(20 * MIB)
    before = _C._host_clock_ns()
    for _ in range(100):
        tensor(20 * MIB)
    assert stats()["active.all.current"] == 1
    assert _C._host_clock_ns() == before


def test_empty_cache_waits_for_recorded_streams() -> None:
    side = torch.musa.Stream(CARD)
    x = tensor(20 * MIB)
    with torch.musa.stream(side):
        torch.musa._sleep(BUSY)
    x.record_stream(side)
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(CARD) == 0
    assert side.query()
    assert stats()["num_sync_all_streams"] >= 1
