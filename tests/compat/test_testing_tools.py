"""The helpers of torch_musa.testing: they pass what is right and find what is wrong."""

import random
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from torch_musa.testing import base_test_tool, common_utils
from torch_musa.testing.base_test_tool import InplaceOpChek, OpTest


def wrong_on_musa(input: torch.Tensor, other: float) -> torch.Tensor:
    return input + other + (5e-2 if input.device.type == "musa" else 0)


def test_values_and_gradients_of_a_function():
    args = {"input": torch.randn(3, 4, requires_grad=True), "other": torch.randn(4, requires_grad=True)}
    test = OpTest(torch.mul, input_args=args)
    test.check_result(train=True)
    test.check_out_ops(bf16=True, fp16=True)
    test.check_grad_fn(fp16=True)
    test.check_musafp16_vs_musafp32()
    test.check_musafp16_vs_cpufp32(train=True)
    test.check_musabf16_vs_musafp16()
    assert args["input"].grad is None


def test_a_wrong_value_is_found():
    test = OpTest(wrong_on_musa, input_args={"input": torch.ones(2), "other": 1.0})
    with pytest.raises(AssertionError, match=r"result 0 differs by up to 0\.0"):
        test.check_result()
    OpTest(wrong_on_musa, input_args={"input": torch.ones(2), "other": 1.0}, ignored_result_indices=[0]).check_result()
    with pytest.raises(AssertionError, match="differs"):
        OpTest(wrong_on_musa, torch.add, input_args={"input": torch.ones(2), "other": 1.0}).check_musafp16_vs_cpufp32()


def test_a_wrong_gradient_is_found():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * (2 if grad.device.type == "musa" else 1)

    args = {"input": torch.randn(3, requires_grad=True)}
    wrong = OpTest(lambda input: Wrong.apply(input), input_args=args)
    wrong.check_result()
    with pytest.raises(AssertionError, match="result 1 differs"):
        wrong.check_result(train=True)


def test_a_module_with_inputs_of_arrays():
    test = OpTest(torch.nn.Linear, input_args={"in_features": 3, "out_features": 2})
    test.check_result({"input": torch.randn(4, 3, requires_grad=True)}, train=True)
    test.check_result([np.ones((2, 3), np.float32)])


def test_an_operator_without_gradient_can_not_train():
    with pytest.raises(RuntimeError, match="no result depends"):
        OpTest(torch.sign, input_args={"input": torch.ones(2)}).check_result(train=True)
    with pytest.raises(ValueError, match="needs func"):
        OpTest()


def test_a_dtype_of_its_own():
    seen = []
    OpTest(
        lambda x: seen.append(x.dtype) or x, input_args={"x": torch.ones(2)}, test_dtype=torch.bfloat16
    ).check_result()
    assert seen == [torch.bfloat16] * 2


def test_methods_in_place():
    check = InplaceOpChek("mul_", torch.randn(4), {"other": torch.randn(4)})
    check.check_address()
    check.check_res()
    check.check_res(cpu_to_fp32=True)
    with pytest.raises(AssertionError, match="gave another tensor"):
        InplaceOpChek("mul", torch.randn(4), {"other": 2}).check_address()
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("ceil_", lambda x: x.zero_(), "PrivateUse1", allow_override=True)
        with pytest.raises(AssertionError, match="ceil_"):
            InplaceOpChek("ceil_", torch.full((2,), 1.5)).check_res()
    finally:
        library._destroy()


@pytest.mark.parametrize(
    ("name", "golden", "right", "wrong"),
    [
        ("DefaultComparator", 1.0, 1.0 + 5e-6, 1.0 + 5e-5),
        ("AbsDiffComparator", 1000.0, 1000.0005, 1000.01),
        ("RelDiffComparator", 1e6, 1e6 + 5, 1e6 + 50),
        ("BooleanComparator", 1.0, 1.0, 1.0 + 1e-9),
    ],
)
def test_comparators(name, golden, right, wrong):
    comparator = getattr(base_test_tool, name)()
    value = torch.tensor([golden, 0.0], dtype=torch.float64)
    assert comparator(torch.tensor([right, 0.0], dtype=torch.float64), value)
    assert not comparator(torch.tensor([wrong, 0.0], dtype=torch.float64), value)


def test_comparator_of_quantised_tensors():
    one = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.1, 10, torch.quint8)
    other = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.2, 10, torch.quint8)
    comparator = base_test_tool.QuantizedComparator()
    assert comparator(one, one.clone())
    assert not comparator(one, other)
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 0])
    channels = torch.quantize_per_channel(torch.ones(2, 2), scales, zeros, 0, torch.qint8)
    assert base_test_tool.QuantizedComparator(is_per_tensor=False)(channels, channels.clone())


def test_a_comparator_must_be_defined():
    with pytest.raises(NotImplementedError, match="defines no _comparator"):
        base_test_tool.Comparator()(torch.ones(1), torch.ones(1))


def test_cards_dtypes_and_data():
    assert torch.musa.is_available() == base_test_tool.MUSA_AVAILABLE
    assert [data.dim() for data in base_test_tool.get_raw_data()] == list(range(1, 9))
    for dtype in base_test_tool.get_all_types():
        assert torch.ones(1, dtype=dtype, device="musa").dtype == dtype
    address, port = base_test_tool.gen_ip_port()
    assert address == "127.0.0.1"
    assert 0 < int(port) < 65536
    current = base_test_tool.test_on_nonzero_card_if_multiple_musa_device(1)(torch.musa.current_device)
    assert current() == (1 if torch.musa.device_count() > 1 else 0)
    number = torch.tensor([1 + 2j]).conj()
    moved = base_test_tool._complex_cpu_to_musa_adjust(number, "musa")
    assert moved.device.type == "musa"
    assert torch.equal(base_test_tool._complex_musa_to_cpu_adjust(moved), number)


def test_random_states_are_kept():
    torch.manual_seed(random.randrange(1 << 30))
    with common_utils.freeze_rng_state():
        inside = torch.rand(3), torch.rand(3, device="musa")
    assert torch.equal(torch.rand(3), inside[0])
    assert torch.equal(torch.rand(3, device="musa"), inside[1])


def test_cycles_are_the_cards_clock():
    start, end = (torch.musa.Event(enable_timing=True) for _ in range(2))
    cycles = common_utils.get_cycles_per_ms()
    start.record()
    torch.musa._sleep(int(5 * cycles))
    end.record()
    torch.musa.synchronize()
    assert start.elapsed_time(end) == pytest.approx(5, rel=0.02)
    assert common_utils.get_musa_arch() == 31


def test_images_are_compared_by_their_mean_error():
    image, other = torch.zeros(10, 10), torch.zeros(10, 10)
    other[0, 0] = 5
    common_utils.assert_close(image, other, mae=True, atol=0.1, rtol=0)
    with pytest.raises(AssertionError, match=r"mean absolute error is 0\.05"):
        common_utils.assert_close(image, other, mae=True, atol=0.01, rtol=0)
    with pytest.raises(AssertionError):
        common_utils.assert_equal(image, other)
    common_utils.assert_equal(image.to("musa"), torch.zeros(10, 10, device="musa"))


ISOLATED = """
import torch
from torch_musa.testing.common_utils import spawn_isolated_test

@spawn_isolated_test
def allocates(size):
    before = torch.musa.memory_allocated()
    torch.ones(size, device="musa")
    assert before == 0

@spawn_isolated_test
def fails():
    raise ValueError("this one")

if __name__ == "__main__":
    torch.musa.init()
    kept = torch.ones(3, device="musa")
    allocates(4)
    try:
        fails()
    except AssertionError as error:
        assert "this one" in str(error)
        print("both")
"""


def test_isolated_tests_run_in_their_own_process(tmp_path):
    file = tmp_path / "isolated.py"
    file.write_text(ISOLATED)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=300)
    assert done.stdout == "both\n", done.stderr


def test_marks():
    def plain() -> None: ...

    assert any(mark.name == "skipif" for mark in common_utils.needs_musa(plain).pytestmark)
    cpu, musa = common_utils.cpu_and_musa()
    assert (cpu, musa.values) == ("cpu", ("musa",))
    assert base_test_tool.skip_on_cpu_arch("m68k").args == (False,)
    assert isinstance(plain, types.FunctionType)
