"""TORCH_MUSA_OP_DEBUG: a log of the operators that run on musa."""

import os
import subprocess
import sys

import pytest
import torch

from torch_musa_sim.musa.op_debug import OpDebug


def test_a_line_for_each_call_on_musa_and_none_for_the_cpu(tmp_path):
    x = torch.ones(2, 3, device="musa:1")
    with OpDebug(tmp_path / "log") as log:
        y = torch.add(x, 2, alpha=3)
        torch.ones(4) + 1
        y.relu_()
    lines = (log.folder / "full_log.txt").read_text().splitlines()
    assert lines == [
        "0 aten::add.Tensor(musa:1 float32 [2, 3], 2, 3) -> musa:1 float32 [2, 3]",
        "1 aten::relu_(musa:1 float32 [2, 3]) -> musa:1 float32 [2, 3]",
    ]
    assert [entry.name for entry in log.folder.iterdir()] == ["full_log.txt"]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (2, "max 4.0 min 1.0 mean 2.5 variance 1.25\n"),
        (3, "[1.0, 2.0, 3.0]\n"),
        (4, "[1.0, 2.0, 3.0, 4.0]\n"),
        (5, "max 4.0 min 1.0 mean 2.5 variance 1.25\n[1.0, 2.0, 3.0]\n"),
        (6, "max 4.0 min 1.0 mean 2.5 variance 1.25\n[1.0, 2.0, 3.0, 4.0]\n"),
    ],
)
def test_levels_say_what_of_a_tensor_is_written(tmp_path, level, expected):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], device="musa")
    with OpDebug(tmp_path / "log", level, length=3) as log:
        x.neg_()  # its input is written as it was before
    assert (log.folder / "0_aten.neg_" / "input_0.txt").read_text() == f"musa:0 float32 [4]\n{expected}"
    assert "-1.0" in (log.folder / "0_aten.neg_" / "output_0.txt").read_text()


def test_operators_are_chosen_by_parts_of_their_names(tmp_path):
    x = torch.ones(2, 2, device="musa")
    for chosen, logged in (({"only": ["mm", "exp"]}, ["aten::mm", "aten::exp"]), ({"without": ["mm"]}, ["aten::exp"])):
        with OpDebug(tmp_path / "log", **chosen) as log:
            torch.exp(x @ x)
        lines = (log.folder / "full_log.txt").read_text().splitlines()
        assert [line.split()[1].split("(")[0] for line in lines] == logged
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "log_1"]


def test_contradictions_are_refused(tmp_path):
    with pytest.raises(ValueError, match="exclude each other"):
        OpDebug(tmp_path / "log", only=["a"], without=["b"])
    with pytest.raises(ValueError, match="level must be 1"):
        OpDebug(tmp_path / "log", level=7)


def test_the_environment_starts_it(tmp_path):
    code = (
        "import torch; x = torch.ones(2, device='musa', requires_grad=True); (x * 3).sum().backward(); x.detach() / 2"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_MUSA_OP_DEBUG": "on",
            "TORCH_MUSA_OP_DEBUG_DIR": str(tmp_path / "a" / "log"),
            "TORCH_MUSA_OP_DEBUG_LEVEL": "3",
            "TORCH_MUSA_OP_DEBUG_BLACK_LIST": "Div,fill",
        },
    )
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "a" / "log" / "full_log.txt").read_text()
    assert log.count("aten::mul.Tensor") == 2  # forward and backward
    assert "aten::div" not in log


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("TORCH_MUSA_OP_DEBUG_DIR", "/dev/null/log", "TORCH_MUSA_OP_DEBUG_DIR=/dev/null/log can't be made"),
        ("TORCH_MUSA_OP_DEBUG_LIST", "mul", "TORCH_MUSA_OP_DEBUG_LIST and TORCH_MUSA_OP_DEBUG_BLACK_LIST exclude"),
    ],
)
def test_a_log_that_cannot_be_is_warned_of_and_leaves_the_device(tmp_path, setting, value, sentence):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TORCH_MUSA_OP_DEBUG": "on",
        "TORCH_MUSA_OP_DEBUG_DIR": str(tmp_path / "log"),
        "TORCH_MUSA_OP_DEBUG_BLACK_LIST": "div",
        setting: value,
    }
    code = "import torch_musa_sim, torch; print(torch.ones(2, device='musa').sum().item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout == "2.0\n"
    assert f"no log of operators: {sentence}" in done.stderr
    assert "isn't available" not in done.stderr
