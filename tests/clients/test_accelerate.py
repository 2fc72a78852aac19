"""accelerate, as its users run it."""

import os
import sys

import pytest

pytest.importorskip("accelerate", reason="pip install 'torch_musa_sim[hf]'")


@pytest.mark.parametrize(("precision", "dtype"), [("no", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")])
def test_accelerator_loop_learns(run_script, precision, dtype):
    dtypes, first, last = run_script("accelerate_loop.py", precision).splitlines()[-1].rsplit(" ", 2)
    assert dtypes == f"{{torch.{dtype}}}"
    assert float(last) < 0.5 * float(first)


def test_accelerate_test(run_command, tmp_path):
    """What a user runs to see whether accelerate works here. It starts `accelerate-launch` from the PATH."""
    for command, module in (("accelerate", "accelerate_cli"), ("accelerate-launch", "launch")):
        # As pip installs them; a test environment may see the package without its commands.
        tool = tmp_path / command
        tool.write_text(f"#!{sys.executable}\nimport accelerate.commands.{module} as tool\ntool.main()\n")
        tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    printed = run_command(str(tmp_path / "accelerate"), "test", MUSA_VISIBLE_DEVICES="0", PATH=path)
    assert "Test is a success!" in printed
    assert "Device: musa" in printed
