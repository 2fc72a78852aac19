"""torchada, which takes programs that say cuda to musa."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torchada", reason="pip install torchada")


@pytest.mark.parametrize("arguments", [(), ("graph",)], ids=["", "graph"])
def test_a_cuda_program_runs(run_script, arguments, tmp_path):
    printed = run_script("cuda_program.py", *arguments, TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert printed.splitlines() == ["patched MUSA", *arguments, "done"]


def test_the_program_never_says_musa():
    text = (Path(__file__).parent / "scripts" / "cuda_program.py").read_text()
    assert "cuda" in text
    assert re.search("musa", text, re.IGNORECASE) is None
