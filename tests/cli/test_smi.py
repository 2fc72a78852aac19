"""`musa-sim smi` and the small information commands."""

import json
import signal
import subprocess
import sys

from cards import two_cards
from expecttest import assert_expected_inline

from torch_musa_sim.cli import info, smi


def test_overview():
    assert_expected_inline(
        smi.overview(two_cards(), "3.3.5-sim") + "\n",
        """\
2 x MTT S5000 (simulated), driver 3.3.5-sim

card  memory                                      busy  memory busy      power   temp
   0  [....................]    0.00 of 79.92 GiB    0%           0%   95/950 W   45 C
   1  [################....]   65.00 of 79.92 GiB   75%          38%  736/950 W   71 C

card      pid        memory  busy  command
   1     4711     60.00 GiB   50%  /usr/bin/python3 train.py --config a/very/long/path/to/a/fil
   1     4712      5.00 GiB   25%  python serve.py
""",
    )


def test_overview_without_processes():
    assert smi.overview(two_cards()[:1], "3.3.5-sim").endswith("\n\nNo process uses a card.")


def test_json_holds_every_figure():
    cards = json.loads(smi.as_json(two_cards()))
    assert cards[1]["memory_used"] == 65 << 30
    assert cards[1]["processes"][1] == {"pid": 4712, "memory": 5 << 30, "busy": 0.25, "command": "python serve.py"}


def test_command(musa_sim):
    done = musa_sim("smi", TORCH_MUSA_SIM_CARD="S80", TORCH_MUSA_SIM_CARDS="3")
    assert done.stdout.startswith("3 x MTT S80 (simulated), driver ")
    assert len(json.loads(musa_sim("smi", "--json", TORCH_MUSA_SIM_CARDS="2").stdout)) == 2
    wrong = musa_sim("smi", "--watch", "0", check=False)
    assert wrong.returncode == 2
    assert "at least 0.1 seconds" in wrong.stderr
    assert "is not accepted" in musa_sim("smi", check=False, TORCH_MUSA_SIM_CARDS="x").stderr


def test_watch_shows_again_until_interrupted():
    command = [sys.executable, "-m", "torch_musa_sim.cli", "smi", "--watch", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/") as watching:
        assert watching.stdout is not None
        titles = 0
        for line in watching.stdout:
            titles += "(simulated), driver" in line
            if titles == 2:
                watching.send_signal(signal.SIGINT)
                break
        _, errors = watching.communicate(timeout=60)
    assert (watching.returncode, errors) == (0, "")


def test_musa_info():
    cards = two_cards()
    assert_expected_inline(
        info.device_text(cards[1], cards, 50200) + "\n",
        """\
--------------------------------------------------------------------------------
device#                           1
Name:                             MTT S5000 (simulated)
UUID:                             746f7263-685f-6d75-7361-5f73696d0001
pciBusID:                         00000000:02:00.0
driver / runtime version:         5.2.0 / 5.2.0
compute capability:               3.1
multiProcessorCount:              56
clockRate:                        1500 MHz
memoryClockRate:                  20000 MHz
memoryBusWidth:                   640 bit
totalGlobalMem:                   85813358592 B (79.92 GiB)
memInfo.free:                     16020140032 B
peers:                            0
""",
    )


def test_version_programs_print_a_name_and_an_object():
    for component in ("musa_toolkits", "musa_runtime"):
        name, _, content = info.version_text(component, 50200).partition(":")
        assert name == component
        assert json.loads(content)["version"] == "5.2.0"


def test_information_commands_run_without_torch(capsys):
    for function in ("musa_info", "musa_version_query", "musa_toolkits_version"):
        code = f"""
import sys; sys.argv = ["musaInfo"]
from torch_musa_sim.cli import info
status = info.{function}([])
assert "torch" not in sys.modules
sys.exit(status)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        assert "simulated" in done.stdout
