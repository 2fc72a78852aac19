"""Shared by the tests of the command `musa-sim`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def musa_sim(tmp_path: Path) -> Run:
    """Runs `musa-sim` in a fresh process and folder, on cards of its own. Keywords are environment variables.

    Unless `check=False` it must exit with 0.
    """

    def run(*arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "torch_musa_sim.cli", *map(str, arguments)],
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "120",
                "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
        )
        if check:
            assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes Python source to a file of the test's folder."""

    def write(source: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return path

    return write
