"""Programs of others, unmodified, each in a process of its own: they keep global state."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def run_command(tmp_path: Path) -> Callable[..., str]:
    """run_command("program", "argument", NAME="value"): runs it in an empty folder and returns what it printed."""

    def run(*command: str, **environment: str) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "default"} | environment,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def run_script(run_command: Callable[..., str]) -> Callable[..., str]:
    """As run_command, for a file of scripts/."""
    return lambda script, *arguments, **environment: run_command(
        sys.executable, str(SCRIPTS / script), *arguments, **environment
    )
