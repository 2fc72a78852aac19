"""Child processes for tests: the device is initialised once per process, from its environment."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
CARDS = HERE.parent.parent / "torch_musa_sim" / "simulate" / "cards"

# Figures that make schedules easy to compute by hand; see test_runtime_schedules.py.
ROUND_FIGURES = {
    "launch_ns": "1000",
    "sync_ns": "500",
    "alloc_ns": "0",
    "poll_ns": "100",
    "kernel_ns": "2000",
    "copy_ns": "3000",
    "graph_launch_ns": "20000",
    "bandwidth": "1e12",
    "host_link.to_card": "10e9",
    "host_link.to_host": "5e9",
    "host_link.pageable_to_card": "4e9",
    "host_link.pageable_to_host": "2e9",
    "card_link": "20e9",
    "peak.fp32": "1e12",
    "peak.bf16": "4e12",
}


class Child:
    """Runs Python code against the runtime in a fresh process, `m` being the bindings."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.running: list[subprocess.Popen[str]] = []

    def environment(self, **settings: str | None) -> dict[str, str]:
        kept = ("PATH", "MUSART_LIBRARY", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment["TORCH_MUSA_SIM_SCOPE"] = self.scope
        if "MUSART_LIBRARY" in os.environ:
            environment["TORCH_MUSA_SIM_CARD_DIR"] = str(CARDS)
        for name, value in settings.items():
            full = name if name.startswith(("MUSA_", "PYTORCH_")) else f"TORCH_MUSA_SIM_{name}"
            if value is not None:
                environment[full] = value
        return environment

    def start(self, code: str, prefix: list[str] | None = None, **settings: str | None) -> subprocess.Popen[str]:
        """A running child with pipes; the test's end kills it."""
        prelude = f"import sys; sys.path.insert(0, {str(HERE)!r})\nimport ctypes, os\nimport musart_api as m\n"
        child = subprocess.Popen(
            [*(prefix or []), sys.executable, "-c", prelude + textwrap.dedent(code)],
            env=self.environment(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(child)
        return child

    def finish(self, code: str, prefix: list[str] | None = None, **settings: str | None) -> tuple[int, str, str]:
        """(return code, stdout, stderr) of a child that ran to its end."""
        child = self.start(code, prefix, **settings)
        out, err = child.communicate(timeout=120)
        return child.returncode, out, err

    def __call__(self, code: str, prefix: list[str] | None = None, **settings: str | None) -> str:
        """What the code prints; it must succeed and print nothing on stderr."""
        status, out, err = self.finish(code, prefix, **settings)
        assert status == 0, err
        assert err == ""
        return out.strip()

    def fails(self, code: str, **settings: str | None) -> str:
        """The text of the MusaError that ends the code."""
        status, _, err = self.finish(code, **settings)
        assert status == 1, f"exit status {status}: {err}"
        lines = [line for line in err.splitlines() if line.startswith("musart_api.MusaError: ")]
        assert len(lines) == 1, err
        return lines[0].removeprefix("musart_api.MusaError: ")
