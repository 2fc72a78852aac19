"""Each test runs the runtime in child processes of a scope of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from musart_child import CARDS, ROUND_FIGURES, Child

_numbers = itertools.count()


@pytest.fixture
def child() -> Iterator[Child]:
    runner = Child(f"test-{os.getpid()}-{next(_numbers)}")
    yield runner
    for process in runner.running:
        if process.poll() is None:
            process.kill()
        process.communicate()
    # Where every process was killed, nobody was left to remove the file.
    for file in Path("/dev/shm").glob(f"torch_musa_sim.*.{runner.scope}"):
        file.unlink()


@pytest.fixture
def round_card(tmp_path: Path) -> str:
    """A card file whose rates count fully and whose times are round."""
    lines = []
    for line in (CARDS / "s5000.card").read_text().splitlines():
        key = line.partition("=")[0].strip()
        if key.endswith(".efficiency"):
            line = f"{key} = 1  # assumed: test"
        elif key in ROUND_FIGURES:
            line = f"{key} = {ROUND_FIGURES[key]}  # assumed: test"
        lines.append(line)
    file = tmp_path / "round.card"
    file.write_text("\n".join(lines))
    return str(file)
