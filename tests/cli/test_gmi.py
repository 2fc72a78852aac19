"""`mthreads-gmi` in the real tool's format."""

import json
import os
import subprocess
import sys

import pytest
from cards import NOW, two_cards
from expecttest import assert_expected_inline

from torch_musa_sim.cli import gmi

DRIVER = "3.3.5-sim"


def lines(text: str) -> str:
    """Golden texts hold no blanks at the end of a line."""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_table():
    assert_expected_inline(
        lines(gmi.table(two_cards(), DRIVER, NOW)),
        """\
Mon Nov 30 20:15:00 2026
---------------------------------------------------------------------
    mthreads-gmi:2.4.1           Driver Version:3.3.5-sim
---------------------------------------------------------------------
ID   Name                 |PCIe                |%GPU  Mem
     Device Type   Perf   |Pcie Lane Width     |Temp  MPC Capable
                                               |      ECC Mode
+-------------------------------------------------------------------+
0    MTT S5000            |00000000:01:00.0    |0%    0MiB(81837MiB)
     Physical      P0     |16x(16x)            |45C   NO
                                               |      On-die, EDC
+-------------------------------------------------------------------+
1    MTT S5000            |00000000:02:00.0    |75%   66560MiB(81837MiB)
     Physical      P0     |16x(16x)            |71C   NO
                                               |      On-die, EDC
+-------------------------------------------------------------------+

---------------------------------------------------------------------
Processes:
ID   PID       Process name                              GPU Memory
                                                              Usage
+-------------------------------------------------------------------+
1    4711      /usr/bin/python3 train.py --confi...        61440MiB
1    4712      python serve.py                              5120MiB
---------------------------------------------------------------------
""",
    )


def test_table_without_processes_says_so():
    assert "     No running processes found\n" in gmi.table(two_cards()[:1], DRIVER, NOW)


def test_query():
    text = gmi.report_text(gmi.report(two_cards()[1:], DRIVER, 2, NOW))
    assert_expected_inline(
        lines(text),
        """\
==============MTHREADS-GMI LOG==============

Timestamp                                         :  Mon Nov 30 20:15:00 2026
Driver Version                                    :  3.3.5-sim
Attached GPUs                                     :  2

GPU1 00000000:02:00.0
    Product Name                                  :  MTT S5000
    Product Brand                                 :  MTT
    GPU UUID                                      :  746f7263-685f-6d75-7361-5f73696d0001
    Serial Number                                 :  SIM000001
    DeviceType                                    :  Physical
    MPC Capable                                   :  NO
    MTBios Version                                :  simulated
    ECC Mode                                      :  On-die, EDC
    PCI
        Bus                                       :  0x02
        Device                                    :  0x00
        Vendor ID                                 :  0x1ED5
        Device ID                                 :  0x0400
        GPU Link Info
            PCIe Generation
                Max                               :  5
                Current                           :  5
            Link Width
                Max                               :  16x
                Current                           :  16x
    FB Memory Usage
        Total                                     :  81837MiB
        Used                                      :  66560MiB
        Free                                      :  15277MiB
    Utilization
        Gpu                                       :  75%
        Memory                                    :  38%
    Temperature
        GPU Current Temp                          :  71C
    Power Readings
        Power Draw                                :  736.25W
        Power Limit                               :  950.00W
    Clocks
        Graphics                                  :  1500MHz
        Memory                                    :  20000MHz
    Processes
        Process ID                                :  4711
        Name                                      :  /usr/bin/python3 train.py --config a/very/long/path/to/a/file.yaml
        Used GPU Memory                           :  61440MiB
        Process ID                                :  4712
        Name                                      :  python serve.py
        Used GPU Memory                           :  5120MiB
""",
    )


def test_json_has_the_names_that_readers_of_the_real_tool_use():
    content = json.loads(json.dumps(gmi.report(two_cards(), DRIVER, 2, NOW)))
    assert content["Driver Version"] == DRIVER
    card = content["GPU"][1]
    assert card["Index"] == "1"
    assert card["Product Name"] == "MTT S5000"
    assert card["GPU UUID"] == two_cards()[1].uuid
    assert card["Serial Number"] == "SIM000001"
    assert card["MTBios Version"]
    assert card["FB Memory Usage"] == {"Total": "81837MiB", "Used": "66560MiB", "Free": "15277MiB"}
    assert card["Utilization"] == {"Gpu": "75%", "Memory": "38%"}
    assert card["Temperature"] == {"GPU Current Temp": "71C"}
    assert card["Power Readings"]["Power Draw "] == "736.25W"  # the blank at the end is the real tool's


def test_the_query_text_is_cut_as_clients_cut_it():
    text = gmi.report_text(gmi.report(two_cards(), DRIVER, 2, NOW))
    pairs = [line.split(" : ") for line in text.splitlines()]
    assert [pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].strip() == "Product Name"] == [
        "MTT S5000"
    ] * 2
    rows = text.splitlines()
    totals = [rows[i + 1].split()[2] for i, row in enumerate(rows) if "FB Memory Usage" in row]
    assert totals == ["81837MiB", "81837MiB"]
    assert [row for row in rows if row.startswith("GPU")] == ["GPU0 00000000:01:00.0", "GPU1 00000000:02:00.0"]


def test_values_of_each_card_as_csv():
    fields = ["index", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu", "power.draw"]
    assert_expected_inline(
        gmi.query(two_cards(), DRIVER, 2, fields, ["csv"]) + "\n",
        """\
index, name, driver_version, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W]
0, MTT S5000, 3.3.5-sim, 81837 MiB, 0 MiB, 0 %, 95.00 W
1, MTT S5000, 3.3.5-sim, 81837 MiB, 66560 MiB, 75 %, 736.25 W
""",
    )
    assert (
        gmi.query(two_cards(), DRIVER, 2, ["memory.used", "count"], ["csv", "noheader", "nounits"]) == "0, 2\n66560, 2"
    )


# ---- the command -----------------------------------------------------------------------------------------------------


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_musa_sim.cli.gmi", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd="/",
    )


def test_memory_processes_and_work_of_another_process_are_shown(tmp_path):
    scope = {"TORCH_MUSA_SIM_SCOPE": f"gmi.{tmp_path.parent.name}.{tmp_path.name}"[:64], "TORCH_MUSA_SIM_CARDS": "2"}
    code = """
import sys, torch
keep = torch.ones(64 << 20, device="musa:1")
torch.musa.set_device(1); torch.musa._sleep(1_500_000_000); torch.musa.synchronize()
print("ready", flush=True); sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **scope, "OMP_NUM_THREADS": "1"},
        cwd="/",
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        cards = json.loads(run("-q", "--json", **scope).stdout)["GPU"]
        assert [card["Index"] for card in cards] == ["0", "1"]
        assert cards[0]["FB Memory Usage"]["Used"] == "0MiB"
        assert int(cards[1]["FB Memory Usage"]["Used"].removesuffix("MiB")) >= 256
        assert int(cards[1]["Utilization"]["Gpu"].removesuffix("%")) >= 90
        assert [process["Process ID"] for process in cards[1]["Processes"]] == [str(other.pid)]
        assert str(other.pid) in run(**scope).stdout
        other.communicate("")
    assert json.loads(run("-q", "-j", **scope).stdout)["GPU"][1]["Processes"] == []


def test_list_and_single_values():
    assert run("-L", TORCH_MUSA_SIM_CARDS="2").stdout == (
        "GPU 0 : MTT S5000 (UUID: 746f7263-685f-6d75-7361-5f73696d0000)\n"
        "GPU 1 : MTT S5000 (UUID: 746f7263-685f-6d75-7361-5f73696d0001)\n"
    )
    assert run("--query-gpu=driver_version", "--format=csv,noheader", "-i", "0").stdout == f"{DRIVER}\n"


def test_options_that_arrive_as_one_argument_are_understood():
    done = run("-q -i 1", TORCH_MUSA_SIM_CARDS="2")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("GPU")] == ["GPU1 00000000:02:00.0"]


def test_the_table_is_also_there_under_its_own_option():
    assert "MiB(" in run("-cf").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-i", "9"], "-i 9: there is no such card"),
        (["--query-gpu=colour"], "unknown field 'colour'; known: driver_version"),
        (["--query-gpu="], "unknown field ''; known: driver_version"),
        (["--query-gpu=name", "--format=xml"], "unknown option 'xml'"),
    ],
)
def test_what_does_not_exist_is_named(arguments, sentence):
    done = run(*arguments)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stdout == ""


def test_a_bad_setting_is_one_line_on_stderr():
    done = run(TORCH_MUSA_SIM_CARDS="many")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mthreads-gmi: TORCH_MUSA_SIM_CARDS=many is not accepted")


def test_all_cards_are_shown_whatever_a_program_may_see():
    assert len(run("-L", MUSA_VISIBLE_DEVICES="0", TORCH_MUSA_SIM_CARDS="3").stdout.splitlines()) == 3


def test_it_starts_in_less_than_0_3_seconds_and_without_torch():
    code = "import sys; sys.argv = ['mthreads-gmi']; from torch_musa_sim.cli import gmi; gmi.main([]); "
    code += "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, sorted(sys.modules)"
    command = [sys.executable, "-c", "import resource, subprocess, sys; r = subprocess.run([sys.executable, '-c', "]
    command[2] += f"{code!r}], stdout=subprocess.DEVNULL); u = resource.getrusage(resource.RUSAGE_CHILDREN); "
    command[2] += "print(r.returncode, u.ru_utime + u.ru_stime)"
    # Processor time, as the machine may be busy; the better of three.
    results = [subprocess.run(command, capture_output=True, text=True, cwd="/").stdout.split() for _ in range(3)]
    assert {status for status, _ in results} == {"0"}
    assert min(float(seconds) for _, seconds in results) < 0.3
