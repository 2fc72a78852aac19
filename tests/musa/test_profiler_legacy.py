"""The older profiler of torch.autograd with use_device="musa"."""

import pytest
import torch


def averages(**options):
    a = torch.ones(64, 64, device="musa")
    with torch.autograd.profiler.profile(use_device="musa", **options) as prof:
        torch.musa._sleep(1_500_000)  # 1 ms of the card, before the operator's own events
        a @ a
    return {e.key: e for e in prof.key_averages()}, prof


def test_an_operator_has_the_virtual_time_between_two_events_around_it():
    found, prof = averages()
    assert 0 < found["aten::mm"].device_time_total < 1000
    assert "Self MUSA" in prof.key_averages().table()


def test_it_uses_the_trace_where_that_is_asked_for():
    found, _ = averages(use_kineto=True)
    assert found["musa_musa__sleep"].self_device_time_total == pytest.approx(1000, rel=0.02)
    assert found["aten::mm"].self_device_time_total == found["musa_mm"].self_device_time_total
