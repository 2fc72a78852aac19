"""State of a card over all processes, as torch.musa's management functions show it."""

import os
import subprocess
import sys

import torch

from torch_musa_sim import _C


def test_state_counts_this_process_and_others():
    t = torch.ones(3 << 18, device="musa:1")
    code = """
import sys, torch
t = torch.ones(1 << 20, device="musa:1"); torch.musa.synchronize(1)
print("ready", flush=True); sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        processes = {entry["pid"]: entry for entry in _C._card_processes(1)}
        assert set(processes) >= {os.getpid(), other.pid}
        assert processes[os.getpid()]["memory"] >= torch.musa.memory_allocated(1) >= t.nbytes
        assert processes[other.pid]["memory"] >= 4 << 20
        assert processes[other.pid]["command"].startswith(sys.executable)
        state = _C._card_state(1)
        assert state["memory_used"] == sum(entry["memory"] for entry in processes.values())
        assert state["memory_total"] == torch.musa.get_device_properties(1).total_memory
        assert state["memory_used"] == state["memory_total"] - torch.musa.mem_get_info(1)[0]
        other.communicate("")
    assert other.pid not in {entry["pid"] for entry in _C._card_processes(1)}


def test_a_card_kept_busy_draws_more_power():
    torch.musa.set_device(2)
    try:
        idle = _C._card_state(2)
        torch.musa._sleep(3_000_000_000)  # two virtual seconds
        torch.musa.synchronize(2)
        busy = _C._card_state(2)
    finally:
        torch.musa.set_device(0)
    assert idle["busy"] == 0
    assert busy["busy"] > 0.99
    assert idle["power_w"] < busy["power_w"] <= busy["power_limit_w"]
    assert idle["temperature_c"] < busy["temperature_c"]
