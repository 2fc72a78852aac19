"""`musa-sim env`: processes without torch find the simulated stack."""

import json
import subprocess
import sys

LOAD = """
import ctypes
runtime, count = ctypes.CDLL("libmusart.so"), ctypes.c_int()
assert runtime.musaGetDeviceCount(ctypes.byref(count)) == 0
ctypes.CDLL("libmtml.so.2")
print(count.value)
"""


def test_the_shell_evaluates_it(musa_sim, tmp_path):
    text = musa_sim("env", "--cards", "3", "--memory", "1GiB").stdout
    script = text + f"exec {sys.executable} -c '{LOAD}'\n"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env={}, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_json_holds_the_same(musa_sim):
    variables = json.loads(musa_sim("env", "--json", "--card", "S80", "--strict").stdout)
    assert variables["TORCH_MUSA_SIM_CARD"] == "S80"
    assert variables["TORCH_MUSA_SIM_STRICT"] == "1"
    assert "TORCH_MUSA_SIM_MEMORY" not in variables
    assert variables["LD_LIBRARY_PATH"].split(":")[0].endswith("torch_musa_sim/lib")


def test_paths_that_are_there_already_are_not_repeated(musa_sim):
    once = json.loads(musa_sim("env", "--json", LD_LIBRARY_PATH="/a:/b").stdout)["LD_LIBRARY_PATH"]
    assert once.endswith(":/a:/b")
    assert json.loads(musa_sim("env", "--json", LD_LIBRARY_PATH=once).stdout)["LD_LIBRARY_PATH"] == once


def test_a_wrong_choice_is_refused(musa_sim):
    done = musa_sim("env", "--cards", "0", check=False)
    assert done.returncode == 2
    assert "TORCH_MUSA_SIM_CARDS=0 is not accepted; accepted: 1 .. 512" in done.stderr
