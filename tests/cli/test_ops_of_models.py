"""`musa-sim ops` on three mixture-of-experts models: the whole report, to the byte.

EXPECTTEST_ACCEPT=1 writes the reports anew. Native kernels are off, so that a faster kernel changes nothing here.
"""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import expecttest
import pytest

pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def report_of(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch_musa_sim.cli", "ops", str(SCRIPTS / name)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_MUSA_SIM_NATIVE": "0",
            "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestReports(expecttest.TestCase):
    def test_qwen3_moe(self):
        self.assertExpectedInline(report_of("qwen3_moe.py"), """""")

    def test_mixtral(self):
        self.assertExpectedInline(report_of("mixtral.py"), """""")

    def test_deepseek_v3(self):
        self.assertExpectedInline(report_of("deepseek_v3.py"), """""")
