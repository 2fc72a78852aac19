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
        assert torch.musa.device_memory_used(1) == state["memory_used"]
        listed = torch.musa.list_gpu_processes(1).splitlines()
        assert listed[0] == "GPU:1"
        rows = {int(line.split()[1]): float(line.split()[3]) for line in listed[1:]}
        assert rows == {pid: round(entry["memory"] / (1 << 20), 3) for pid, entry in processes.items()}
        other.communicate("")
    assert other.pid not in {entry["pid"] for entry in _C._card_processes(1)}


def test_a_card_kept_busy_draws_more_power():
    torch.musa.set_device(2)
    try:
        idle = _C._card_state(2)
        torch.musa._sleep(3_000_000_000)  # two virtual seconds
        torch.musa.synchronize(2)
        busy = _C._card_state(2)
        assert torch.musa.utilization() == torch.musa.utilization("musa:2") == 100
        assert torch.musa.power_draw(2) == round(1000 * busy["power_w"]) > torch.musa.power_draw(3)
        assert torch.musa.temperature(2) == round(busy["temperature_c"]) > torch.musa.temperature(3)
        assert torch.musa.memory_usage(2) == 100  # _sleep is priced as traffic
    finally:
        torch.musa.set_device(0)
    assert idle["busy"] == 0
    assert busy["busy"] > 0.99
    assert idle["power_w"] < busy["power_w"] <= busy["power_limit_w"]
    assert idle["temperature_c"] < busy["temperature_c"]


def test_an_unused_card_is_idle():
    assert torch.musa.utilization(5) == torch.musa.memory_usage(5) == torch.musa.device_memory_used(5) == 0
    assert torch.musa.list_gpu_processes(5) == "GPU:5\nno processes are running"
    assert torch.musa.clock_rate(5) == torch.musa.get_device_properties(5).clock_rate // 1000 == 1500


def test_visible_cards_are_looked_up_by_their_physical_number():
    code = """
import torch
keep = torch.ones(1 << 20, device="musa:0"); torch.musa.synchronize()
print(torch.musa.device_memory_used(0) >= 4 << 20, torch.musa.device_memory_used(1))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "MUSA_VISIBLE_DEVICES": "6,0"},
    )
    assert done.stdout == "True 0\n", done.stderr
