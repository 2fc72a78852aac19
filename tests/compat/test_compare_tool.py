"""The debugging modes: they find the operator that is wrong, and only that one."""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch_musa.utils import compare_tool
from torch_musa.utils.compare_tool import CompareWithCPU, NanInfTracker, open_module_tracker


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.act = torch.nn.Sequential(torch.nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.first(x))


@contextlib.contextmanager
def wrong_tanh() -> Iterator[None]:
    """tanh on musa is off by 0.5 where the result is largest."""
    library = torch.library.Library("aten", "IMPL")

    def tanh(x: torch.Tensor) -> torch.Tensor:
        right = x.cpu().tanh()
        right.view(-1)[right.argmax()] += 0.5
        return right.to(x.device)

    library.impl("tanh", tanh, "PrivateUse1", allow_override=True)
    try:
        yield
    finally:
        library._destroy()


def test_a_right_model_passes_forward_and_backward(capsys):
    torch.manual_seed(0)
    model = Net().to("musa")
    with CompareWithCPU():
        model(torch.randn(2, 4, device="musa")).sum().backward()
        torch.randn(3, device="musa")  # random: nothing to compare
    printed = capsys.readouterr().out
    assert "[ERROR]" not in printed
    assert "torch.ops.aten.tanh(forward) succeeds to pass CompareWithCPU test" in printed
    assert "torch.ops.aten.tanh_backward" in printed
    assert "randn" not in printed


def test_a_wrong_operator_is_named_with_its_module(capsys):
    torch.manual_seed(0)
    model = Net().to("musa")
    open_module_tracker(model)
    with wrong_tanh(), CompareWithCPU(verbose=False):
        model(torch.randn(2, 4, device="musa"))
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[ERROR]")]
    assert errors == ["[ERROR] Net/Sequential/Tanh/torch.ops.aten.tanh(forward) fails to pass CompareWithCPU test"]
    assert compare_tool.current_module_info is compare_tool.root_module_info


def test_an_operator_in_place_is_compared_by_what_it_wrote(capsys):
    with CompareWithCPU():
        torch.ones(3, device="musa").add_(1)
    printed = capsys.readouterr().out
    assert "torch.ops.aten.add_(forward) succeeds" in printed


@pytest.mark.parametrize(
    ("options", "found"),
    [({"target_list": ["torch.ops.aten.add"]}, False), ({"white_list": ["torch.ops.aten.tanh"]}, False), ({}, True)],
    ids=str,
)
def test_lists_choose_the_operators(capsys, options, found):
    with wrong_tanh(), CompareWithCPU(verbose=False, **options):
        torch.ones(3, device="musa").tanh()
    assert ("[ERROR]" in capsys.readouterr().out) == found


def test_steps_choose_the_time(capsys):
    with wrong_tanh(), CompareWithCPU(verbose=False, start_step=1, end_step=2) as watch:
        found = []
        for _ in range(3):
            torch.ones(3, device="musa").tanh()
            found.append("[ERROR]" in capsys.readouterr().out)
            watch.step()
    assert found == [False, True, False]


def test_a_failure_is_written_down_and_run_again(tmp_path, capsys):
    with (
        wrong_tanh(),
        pytest.raises(RuntimeError, match="its inputs and outputs are in"),
        CompareWithCPU(dump_error_data=True, output_dir=str(tmp_path), should_log_to_file=True),
    ):
        torch.ones(3, device="musa").tanh()
    assert "[ERROR]" in (tmp_path / "rank_0.log").read_text()
    saved = str(tmp_path / "torch.ops.aten.tanh_inputs.pkl")
    correct, args, _, out = compare_tool.compare_for_single_op(saved, torch.ops.aten.tanh, 1e-3, 1e-3)
    assert correct
    assert args[0].device.type == "musa"
    torch.testing.assert_close(out.cpu(), torch.ones(3).tanh())
    with wrong_tanh():
        assert not compare_tool.compare_for_single_op(saved, torch.ops.aten.tanh, 1e-3, 1e-3)[0]


def test_the_first_infinity_is_found(tmp_path, capsys):
    with NanInfTracker():
        zero = torch.zeros(2, device="musa")
        torch.ones(2, device="musa") / zero
        torch.ones(2, device="musa") + zero
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.endswith("gives NaN or infinity")]
    assert warnings == ["[WARNING] torch.ops.aten.div(forward) gives NaN or infinity"]
    with pytest.raises(RuntimeError), NanInfTracker(dump_error_data=True, output_dir=str(tmp_path)):
        torch.zeros(2, device="musa").log()
    saved = str(tmp_path / "torch.ops.aten.log_inputs.pkl")
    assert not compare_tool.nan_inf_track_for_single_op(saved, torch.ops.aten.log)[0]


def test_a_disabled_mode_sees_nothing(capsys):
    with wrong_tanh(), CompareWithCPU(enabled=False), NanInfTracker(enable_ranks=[3]):
        torch.ones(3, device="musa").tanh()
    assert capsys.readouterr().out == ""


def test_comparison_of_values():
    one = torch.tensor([1.0, float("nan"), float("inf"), 5.0])
    other = torch.tensor([1.0001, float("nan"), float("-inf"), 6.0])
    assert compare_tool.compare_tensors(one, other, 1e-3, 0).tolist() == [False, False, True, True]
    assert compare_tool.recursive_compare({"a": [one]}, {"a": [one.clone()]}, 0, 0)
    assert not compare_tool.recursive_compare([one], [one, one], 0, 0)
    assert compare_tool.convert_to_dtype((one, torch.arange(2)), torch.float64)[0].dtype == torch.float64


def test_a_function_out_of_sight_of_the_modes(capsys):
    class Plain:
        run = compare_tool.TorchFuncMockNoDispatch(lambda self, x: x.tanh())

    with CompareWithCPU():
        Plain().run(torch.ones(2, device="musa"))
    assert "tanh" not in capsys.readouterr().out
