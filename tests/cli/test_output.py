"""The tools in pipes: a reader that leaves early is nothing to make words about."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ["torch_musa_sim.cli", "smi", "--json"],
        ["torch_musa_sim.cli", "env"],
        ["torch_musa_sim.cli", "doctor"],
        ["torch_musa_sim.cli.gmi", "-q"],
    ],
    ids=" ".join,
)
def test_a_reader_that_leaves_ends_the_tool_in_silence(command):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run([sys.executable, "-m", *command], stdout=nobody, stderr=subprocess.PIPE, text=True)
    assert done.stderr == ""
    assert done.returncode == 128 + 13
