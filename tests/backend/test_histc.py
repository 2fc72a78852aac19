"""histc counts integers as CUDA does, and floats as the CPU does; mode with out=."""

import pytest
import torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def counted(values, bins, low, high):
    """The definition: equal bins, the last one closed, what is outside is dropped."""
    counts = [0] * bins
    for v in values.flatten().tolist():
        if low <= v <= high:
            counts[min((v - low) * bins // (high - low), bins - 1)] += 1
    return counts


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(("bins", "low", "high"), [(8, 0, 7), (4, 0, 7), (5, 2, 30), (100, 0, 40), (3, 5, 6)])
def test_integers(dtype, bins, low, high):
    values = torch.randint(0, 41, (7, 9), generator=torch.Generator().manual_seed(1)).to(dtype)
    have = torch.histc(values.to("musa"), bins, low, high)
    assert have.dtype == dtype
    assert have.device.type == "musa"
    assert have.tolist() == counted(values, bins, low, high)


def test_bounds_default_to_those_of_the_values():
    values = torch.tensor([3, 9, 4, 4, -2], dtype=torch.int32)
    assert torch.histc(values.to("musa"), 5).tolist() == counted(values, 5, -2, 9)
    assert torch.histc(values.to("musa"), 5, 1, 1).tolist() == counted(values, 5, -2, 9)
    same = torch.full((6,), 4, device="musa")
    assert torch.histc(same, 2).tolist() == [0, 6]  # bounds 3 .. 5
    assert torch.histc(torch.empty(0, dtype=torch.int32, device="musa"), 3).tolist() == [0, 0, 0]


def test_large_values_do_not_overflow():
    top = 2**62
    values = torch.tensor([0, top, top - 1, top // 2], device="musa")
    assert torch.histc(values, 1000, 0, top)[[0, 500, 999]].tolist() == [1, 1, 2]


def test_strided_input_and_out():
    values = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    part = values.to("musa").t()[::2]
    out = torch.empty(0, dtype=torch.int32, device="musa")
    result = torch.histc(part, 4, 0, 23, out=out)
    assert result is out
    assert out.tolist() == counted(values.t()[::2], 4, 0, 23)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.histc(part, 4, 0, 23, out=torch.empty(4, device="musa"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_floats_equal_cpu(dtype):
    values = torch.randn(100, generator=torch.Generator().manual_seed(1)).to(dtype)
    for args in ((10,), (7, -1, 1), (3, 0, 0)):
        assert torch.equal(torch.histc(values.to("musa"), *args).cpu(), torch.histc(values, *args))


def test_wrong_arguments():
    values = torch.arange(3, device="musa")
    with pytest.raises(RuntimeError, match="bins must be > 0"):
        torch.histc(values, 0)
    with pytest.raises(RuntimeError, match="max must be larger than min"):
        torch.histc(values, 3, 2, 1)


@pytest.mark.parametrize("keepdim", [False, True])
def test_mode_out(keepdim):
    x = torch.tensor([[1, 2, 2], [3, 3, 1]])
    want = torch.mode(x, 1, keepdim)
    values, indices = (torch.empty(0, dtype=torch.int64, device="musa") for _ in range(2))
    torch.mode(x.to("musa"), 1, keepdim, out=(values, indices))
    assert torch.equal(values.cpu(), want.values)
    assert torch.equal(indices.cpu(), want.indices)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        torch.mode(x.to("musa"), 1, out=(values.float(), indices))
