"""torchada, which takes programs that say cuda to musa."""

import importlib.util
import re
from pathlib import Path

import pytest

# Looked for and not imported: it patches torch for the rest of the process.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchada") is None, reason="pip install torchada")


@pytest.mark.parametrize("arguments", [(), ("graph",)], ids=["", "graph"])
def test_a_cuda_program_runs(run_script, arguments, tmp_path):
    printed = run_script("cuda_program.py", *arguments, TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert printed.splitlines() == ["patched MUSA", *arguments, "done"]


def test_the_program_never_says_musa():
    text = (Path(__file__).parent / "scripts" / "cuda_program.py").read_text()
    assert "cuda" in text
    assert re.search("musa", text, re.IGNORECASE) is None
