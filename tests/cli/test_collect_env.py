"""`python -m torch_musa_sim.collect_env` prints torch's report and ours."""

import os
import subprocess
import sys

import pytest
import torch


@pytest.mark.parametrize("module", ["torch_musa_sim.collect_env", "torch_musa.collect_env"])
def test_report(module):
    done = subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "TORCH_MUSA_SIM_CARDS": "3", "TORCH_MUSA_SIM_CARD": "S80"},
    )
    assert done.returncode == 0, done.stderr
    theirs, _, ours = done.stdout.partition("\ntorch_musa_sim:\n")
    assert f"PyTorch version: {torch.__version__}" in theirs
    assert "cards: 3 x MTT S80 (simulated), 3 visible" in ours
    assert "TORCH_MUSA_SIM_CARDS=3" in ours
    assert ours.rstrip().endswith("Problems:\nnone")
