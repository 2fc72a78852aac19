"""torch.musa: memory figures under CUDA's names."""

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
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
    ):
        assert scalar in stats


@pytest.mark.parametrize("reset", [torch.musa.reset_peak_memory_stats, torch.musa.reset_max_memory_allocated])
def test_peak_can_be_reset(reset):
    large = torch.empty(4096 * KIB, dtype=torch.uint8, device="musa:1")
    del large
    assert torch.musa.max_memory_allocated(1) >= 4096 * KIB
    reset("musa:1")
    assert torch.musa.max_memory_allocated(1) == torch.musa.memory_allocated(1) < 4096 * KIB


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


def test_summary_names_the_card_and_abbreviates():
    text, short = torch.musa.memory_summary(1), torch.musa.memory_summary(1, abbreviated=True)
    assert "musa:1" in text
    assert torch.musa.get_device_name(1) in text
    assert text.count("large pool") > 5
    assert "pool" not in short


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
