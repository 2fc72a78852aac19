"""torch.musa: memory figures under CUDA's names."""

import itertools
import re

import pytest
import torch

KIB = 1024


def test_stats_are_flat_and_agree_with_the_short_names():
    keep = torch.empty(100 * KIB, dtype=torch.uint8, device="musa")
    stats = torch.musa.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.musa.memory_allocated() >= keep.nbytes
    assert stats["reserved_bytes.all.peak"] == torch.musa.max_memory_reserved()
    assert (
        stats["allocated_bytes.all.current"]
        == torch.musa.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
    )
    for kind in (
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    ):
        for pool in ("all", "large_pool", "small_pool"):
            for field in ("current", "peak", "allocated", "freed"):
                assert f"{kind}.{pool}.{field}" in stats
    for scalar in (
        "num_oom_rejections",
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ):
        assert scalar in stats


def raise_peak_of_card_1():
    large = torch.empty(4096 * KIB, dtype=torch.uint8, device="musa:1")
    del large
    assert torch.musa.max_memory_allocated(1) >= 4096 * KIB


def test_peak_can_be_reset():
    raise_peak_of_card_1()
    torch.musa.reset_peak_memory_stats("musa:1")
    assert torch.musa.max_memory_allocated(1) == torch.musa.memory_allocated(1) < 4096 * KIB


@pytest.mark.parametrize("reset", [torch.musa.reset_max_memory_allocated, torch.musa.reset_max_memory_cached])
def test_peak_can_be_reset_by_the_older_names_which_warn(reset):
    raise_peak_of_card_1()
    with pytest.warns(FutureWarning, match=f"{reset.__name__} resets every peak"):
        reset("musa:1")
    assert torch.musa.max_memory_allocated(1) == torch.musa.memory_allocated(1) < 4096 * KIB


def test_the_statistics_that_cudas_documentation_names_are_there():
    torch.empty(1, device="musa")
    stats = torch.musa.memory_stats()
    text = torch.cuda.memory_stats.__doc__
    assert text is not None
    names = set(re.findall(r'``"([a-z_.{},]+)"``', text))
    assert len(names) > 15
    for name in names - {"reserved_bytes_by_private_pools", "_"}:  # keys only with a pool, and its separator
        kind, *rest = name.split(".")
        kind = "allocation" if kind == "allocated" else kind  # the documentation's slip; CUDA returns "allocation"
        choices = [part.strip("{}").split(",") for part in rest]
        for parts in itertools.product(*choices):
            assert ".".join([kind, *parts]) in stats
    assert "reserved_bytes_by_private_pools" in torch.musa.memory_stats_as_nested_dict()


def test_statistics_of_all_cards_are_a_sum():
    keep = [torch.empty(1000, device=f"musa:{card}") for card in (0, 1)]
    cards = range(torch.musa.device_count())
    total = torch.musa.memory_stats_all()
    assert total["allocated_bytes.all.current"] == sum(torch.musa.memory_allocated(card) for card in cards)
    del keep


@pytest.mark.parametrize("abbreviated", [False, True])
def test_the_summary_is_cudas_table(monkeypatch, abbreviated):
    keep = [torch.empty(3000 * KIB * n, dtype=torch.uint8, device="musa:1") for n in (1, 2, 300)]
    for _ in range(2000):
        torch.empty(1, device="musa:1")
    stats = torch.musa.memory_stats(1)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.cuda.memory, "_get_device_index", lambda device, optional: device)
    theirs = torch.cuda.memory.memory_summary(1, abbreviated)
    expected = theirs.replace("CUDA", "MUSA").replace("cudaMalloc", "musaMalloc")
    assert torch.musa.memory_summary(1, abbreviated) == expected
    del keep


def test_totals_can_be_reset():
    torch.empty(1, device="musa")
    assert torch.musa.memory_stats()["allocation.all.allocated"] > 0
    torch.musa.reset_accumulated_memory_stats()
    assert torch.musa.memory_stats()["allocation.all.allocated"] == 0


def test_snapshot_adds_up():
    keep = torch.empty(3000 * KIB, dtype=torch.uint8, device="musa")
    segments = [segment for segment in torch.musa.memory_snapshot() if segment["device"] == 0]
    assert sum(segment["total_size"] for segment in segments) == torch.musa.memory_reserved()
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    (block,) = [b for s in segments for b in s["blocks"] if b["address"] == keep.data_ptr()]
    assert block["state"] == "active_allocated"
    assert block["requested_size"] == keep.nbytes


@pytest.mark.parametrize("fraction", [0, -0.5, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(ValueError, match="above 0 and up to 1"):
        torch.musa.set_per_process_memory_fraction(fraction)


def test_a_fraction_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="must be a number"):
        torch.musa.set_per_process_memory_fraction("half")


def test_the_fraction_is_kept_per_card():
    torch.musa.set_per_process_memory_fraction(0.5, 2)
    assert torch.musa.get_per_process_memory_fraction(2) == 0.5
    assert torch.musa.get_per_process_memory_fraction(1) == 1
    torch.musa.set_per_process_memory_fraction(1.0, 2)
