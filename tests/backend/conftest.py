"""Shared by the backend's tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable

import pytest

RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_script() -> RunScript:
    """Runs Python source in a process of its own, whose cards no other process shares.

    Keywords are environment variables. Unless `check=False` the script must exit with 0.
    """

    def run(
        source: str, check: bool = True, timeout: float = 240.0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        scope = f"test.{os.getpid()}.{uuid.uuid4().hex[:12]}"
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source)],
            env={**os.environ, "TORCH_MUSA_SIM_SCOPE": scope, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    return run
