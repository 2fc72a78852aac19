"""Private memory pools: what is allocated from them, who holds them, when their memory goes back to the card."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import RunScript

from torch_musa_sim import _C

KIB, MIB = 1 << 10, 1 << 20
CARD = 4  # no other test allocates here, so that every figure is exact


def tensor(nbytes: int, card: int = CARD) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=f"musa:{card}")


def reserved(pool: Any = None) -> int:
    stats = torch.musa.memory_stats(CARD)
    key = "reserved_bytes" if pool is None else "reserved_bytes_by_private_pools." + "_".join(map(str, pool.id))
    return stats.get(f"{key}.all.current", 0)


def owner(x: torch.Tensor) -> tuple[int, int]:
    for segment in torch.musa.memory_snapshot():
        if segment["address"] <= x.data_ptr() < segment["address"] + segment["total_size"]:
            return segment["segment_pool_id"]
    raise AssertionError("in no segment")


@pytest.fixture(autouse=True)
def empty_card() -> Iterator[None]:
    with torch.musa.device(CARD):
        torch.musa.empty_cache()
        assert (torch.musa.memory_allocated(), reserved()) == (0, 0)
        yield
        torch.musa.empty_cache()
        assert (torch.musa.memory_allocated(), reserved()) == (0, 0)


@pytest.mark.parametrize("nbytes", [100, 64 * KIB, 300 * KIB, 3 * MIB, 30 * MIB])
def test_a_pool_and_the_rest_of_the_card_never_share_blocks(nbytes: int) -> None:
    pool = torch.musa.MemPool()
    outside = tensor(nbytes)
    free_outside = outside.data_ptr()
    del outside
    with torch.musa.use_mem_pool(pool):
        inside = tensor(nbytes)
        free_inside = inside.data_ptr()
    assert owner(inside) == pool.id
    del inside
    assert tensor(nbytes).data_ptr() == free_outside != free_inside
    with torch.musa.use_mem_pool(pool):
        assert tensor(nbytes).data_ptr() == free_inside


def test_results_of_operators_come_from_the_pool() -> None:
    pool = torch.musa.MemPool()
    a = torch.ones(64, 64, device="musa")
    with torch.musa.use_mem_pool(pool):
        results = [a @ a, a + a, a.sum(), torch.nonzero(a)]
    assert {owner(x) for x in results} == {pool.id}
    assert owner(a) == owner(a + a) == (0, 0)


def test_the_memory_of_a_pool_that_is_gone_returns_to_the_card() -> None:
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool):
        used, unused = tensor(30 * MIB), tensor(20 * MIB)
    del unused
    assert reserved() == reserved(pool) == 50 * MIB
    torch.musa.empty_cache()  # a graph may still replay into what looks unused
    assert reserved() == 50 * MIB
    del pool
    assert reserved() == 30 * MIB  # the pool's object took what no tensor uses with it
    del used
    assert reserved() == 30 * MIB
    torch.musa.empty_cache()
    assert reserved() == 0


def test_a_full_card_takes_back_what_a_released_pool_left(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        MIB = 1 << 20
        tensor = lambda n: torch.empty(n * MIB, dtype=torch.uint8, device="musa")
        pool = torch.musa.MemPool()
        with torch.musa.use_mem_pool(pool):
            x = tensor(40)
        y = tensor(10)
        del pool, x
        del y
        assert tensor(60).numel() == 60 * MIB
        """,
        TORCH_MUSA_SIM_MEMORY="64MiB",
    )


def test_memory_of_a_held_pool_is_not_taken_on_a_full_card_unless_it_allows_that(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        MIB = 1 << 20
        tensor = lambda n: torch.empty(n * MIB, dtype=torch.uint8, device="musa")
        strict, lender = torch.musa.MemPool(), torch.musa.MemPool(use_on_oom=True)
        with torch.musa.use_mem_pool(strict):
            x = tensor(40)
        del x
        try:
            tensor(30)
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError("took memory of a held pool")
        del strict
        with torch.musa.use_mem_pool(lender):
            x = tensor(40)
        address = x.data_ptr()
        del x
        y = tensor(30)
        assert y.data_ptr() == address
        del y
        with torch.musa.use_mem_pool(lender):
            assert tensor(40).data_ptr() == address
        """,
        TORCH_MUSA_SIM_MEMORY="64MiB",
    )


def test_without_splitting_each_request_has_a_segment() -> None:
    pool = torch.musa.MemPool(no_split=True)
    with torch.musa.use_mem_pool(pool):
        keep = [tensor(100) for _ in range(3)]
    assert len(pool.snapshot()) == 3
    assert all(len(segment["blocks"]) == 1 for segment in pool.snapshot())
    del keep


def test_only_the_thread_that_asked_allocates_from_the_pool() -> None:
    pool = torch.musa.MemPool()
    elsewhere: list[torch.Tensor] = []
    with torch.musa.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: elsewhere.append(tensor(100)))
        thread.start()
        thread.join()
        mine = tensor(100)
    assert (owner(mine), owner(elsewhere.pop())) == (pool.id, (0, 0))


def test_a_route_for_a_stream_leaves_other_streams_alone() -> None:
    pool = torch.musa.MemPool()
    stream = torch.musa.Stream()
    with torch.musa.stream(stream):
        _C._begin_allocate_current_stream_to_pool(CARD, pool.id)
        inside = tensor(100)
    outside = tensor(100)
    _C._end_allocate_to_pool(CARD, pool.id)
    _C._release_pool(CARD, pool.id)
    assert (owner(inside), owner(outside)) == (pool.id, (0, 0))


def test_a_route_leaves_other_cards_alone() -> None:
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool, device=CARD):
        assert owner(tensor(100, card=3)) == (0, 0)


def test_the_innermost_pool_counts() -> None:
    outer, inner = torch.musa.MemPool(), torch.musa.MemPool()
    with torch.musa.use_mem_pool(outer):
        with torch.musa.use_mem_pool(inner):
            x = tensor(100)
        y = tensor(100)
    assert (owner(x), owner(y)) == (inner.id, outer.id)


def test_use_counts() -> None:
    pool = torch.musa.MemPool()
    assert pool.use_count() == 1
    with torch.musa.use_mem_pool(pool):
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    with pytest.raises(ZeroDivisionError), torch.musa.use_mem_pool(pool):
        raise ZeroDivisionError
    assert pool.use_count() == 1


def test_ids_are_unique_and_written_as_cudas() -> None:
    pools = [torch.musa.MemPool() for _ in range(3)]
    ids = [pool.id for pool in pools] + [torch.musa.graph_pool_handle()]
    assert len(set(ids)) == 4
    assert all(first == 0 and second > 0 for first, second in ids)


def test_the_active_pool_is_the_youngest_context() -> None:
    pool, other = torch.musa.MemPool(), torch.musa.MemPool()
    assert torch.musa.MemPoolContext.active_pool() is None
    with torch.musa.use_mem_pool(pool):
        context = torch.musa.MemPoolContext(other)
        assert context.active_pool() is other
        del context
        assert torch.musa.MemPoolContext.active_pool() is pool
    assert torch.musa.MemPoolContext.active_pool() is None


def test_a_block_used_by_another_stream_waits_inside_its_pool() -> None:
    pool = torch.musa.MemPool()
    side = torch.musa.Stream()
    with torch.musa.use_mem_pool(pool):
        x = tensor(5 * MIB)
        address = x.data_ptr()
        with torch.musa.stream(side):
            torch.musa._sleep(10**9)
        x.record_stream(side)
        del x
        assert tensor(5 * MIB).data_ptr() != address
        torch.musa.synchronize()
        assert tensor(5 * MIB).data_ptr() == address


def test_what_is_allocated_in_a_pool_can_be_checked() -> None:
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool):
        x, y = tensor(100), tensor(3 * MIB)
    assert _C._pool_holds_exactly(CARD, pool.id, {x.data_ptr(), y.data_ptr()})
    assert not _C._pool_holds_exactly(CARD, pool.id, {x.data_ptr()})
    assert not _C._pool_holds_exactly(CARD, pool.id, {x.data_ptr(), y.data_ptr(), 1})


@pytest.mark.parametrize("call", [_C._end_allocate_to_pool, _C._release_pool])
def test_an_end_without_a_begin_is_refused(call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"memory pool \(0, 999999\)"):
        call(CARD, (0, 999999))


def test_thousands_of_pools_leave_no_memory_behind() -> None:
    for _ in range(1500):
        pool = torch.musa.MemPool()
        with torch.musa.use_mem_pool(pool):
            tensor(100)
        del pool
    assert reserved() == 0
    assert len(torch.musa.memory_stats_as_nested_dict(CARD)["reserved_bytes_by_private_pools"]) <= 1024


def test_figures_of_a_pool_outlive_it() -> None:
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool):
        tensor(3 * MIB)
    key = pool.id
    del pool
    figures = torch.musa.memory_stats_as_nested_dict(CARD)["reserved_bytes_by_private_pools"][key]
    assert (figures["all"]["current"], figures["all"]["peak"], figures["large_pool"]["freed"]) == (
        0,
        20 * MIB,
        20 * MIB,
    )
