"""State of a card over all processes, as torch.musa's management functions show it.

What a card holds and has done lasts as long as the process: what needs an untouched card runs in a process of its own.
"""

import json
import os
import subprocess
import sys
import textwrap
import uuid
from typing import Any

import torch

from torch_musa_sim import _C


def on_untouched_cards(code: str, **environment: str) -> Any:
    """What `code` leaves in `answer`, run in a process of its own on cards that no other process shares."""
    before = "import json, torch\nfrom torch_musa_sim import _C\n"
    done = subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(code) + "\nprint(json.dumps(answer))"],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}", **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    answer = on_untouched_cards("""
        torch.musa.set_device(2)
        idle = _C._card_state(2)
        torch.musa._sleep(3_000_000_000)  # two virtual seconds
        torch.musa.synchronize(2)
        busy = _C._card_state(2)
        answer = {
            "idle": idle,
            "busy": busy,
            "utilization": [torch.musa.utilization(), torch.musa.utilization("musa:2")],
            "power": [torch.musa.power_draw(2), torch.musa.power_draw(3)],
            "temperature": [torch.musa.temperature(2), torch.musa.temperature(3)],
            "memory_usage": torch.musa.memory_usage(2),
        }
    """)
    idle, busy = answer["idle"], answer["busy"]
    assert idle["busy"] == 0
    assert busy["busy"] > 0.99
    assert idle["power_w"] < busy["power_w"] <= busy["power_limit_w"]
    assert idle["temperature_c"] < busy["temperature_c"]
    assert answer["utilization"] == [100, 100]
    assert answer["memory_usage"] == 100  # _sleep is priced as traffic
    (power, power_of_idle), (temperature, temperature_of_idle) = answer["power"], answer["temperature"]
    assert power == round(1000 * busy["power_w"]) > power_of_idle == round(1000 * idle["power_w"])
    assert temperature == round(busy["temperature_c"]) > temperature_of_idle == round(idle["temperature_c"])


def test_utilisation_forgets_what_was_before_the_last_seconds():
    shares = on_untouched_cards("""
        def work(card, seconds):
            with torch.musa.device(card):
                torch.musa._sleep(round(1.5e9 * seconds))
                torch.musa.synchronize()

        answer = []
        work(2, 0.001)
        work(3, 20)  # meanwhile card 2 is idle
        work(2, 2)
        answer.append(_C._card_state(2)["busy"])
        work(3, 20)
        answer.append(_C._card_state(2)["busy"])
        work(2, 0.25)  # of the last virtual second
        answer.append(_C._card_state(2)["busy"])
        for _ in range(100):  # a tenth of the time busy, beyond the two seconds
            work(2, 0.01)
            work(3, 0.09)
        answer.append(_C._card_state(2)["busy"])
    """)
    busy, idle, quarter, tenth = shares
    assert busy > 0.99
    assert idle == 0
    assert 0.249 < quarter < 0.251
    assert 0.08 < tenth < 0.11


def test_an_unused_card_is_idle():
    used, processes, clocks = on_untouched_cards("""
        t = torch.ones(4, device="musa:0")  # another card
        used = [torch.musa.utilization(5), torch.musa.memory_usage(5), torch.musa.device_memory_used(5)]
        clocks = [torch.musa.clock_rate(5), torch.musa.get_device_properties(5).clock_rate // 1000]
        answer = used, torch.musa.list_gpu_processes(5), clocks
    """)
    assert used == [0, 0, 0]
    assert processes == "GPU:5\nno processes are running"
    assert clocks == [1500, 1500]


def test_visible_cards_are_looked_up_by_their_physical_number():
    holds, other = on_untouched_cards(
        """
        keep = torch.ones(1 << 20, device="musa:0"); torch.musa.synchronize()
        answer = torch.musa.device_memory_used(0), torch.musa.device_memory_used(1)
        """,
        MUSA_VISIBLE_DEVICES="6,0",
    )
    assert holds >= 4 << 20
    assert other == 0
