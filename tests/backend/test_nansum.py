"""nansum and nanmean: complex numbers as on CUDA, real ones as on the CPU."""

import pytest
import torch

NAN = float("nan")


def complex_values() -> torch.Tensor:
    values = torch.randn(4, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(5))
    values[0, 1] = complex(NAN, 1)
    values[2, 3] = complex(2, NAN)
    return values


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex(dtype, dim):
    values = complex_values().to(dtype)
    usable = torch.where(torch.isnan(values), torch.zeros((), dtype=dtype), values)
    count = (~torch.isnan(values)).sum(dim)
    musa = values.to("musa")
    torch.testing.assert_close(torch.nansum(musa, dim).cpu(), usable.sum(dim))
    torch.testing.assert_close(torch.nanmean(musa, dim).cpu(), usable.sum(dim) / count)


def test_complex_gradient():
    values = complex_values().to("musa").requires_grad_()
    torch.nansum(values).abs().backward()
    assert torch.equal((values.grad == 0).cpu(), torch.isnan(complex_values()))


def test_out():
    values, out = complex_values().to("musa"), torch.empty(0, dtype=torch.complex128, device="musa")
    torch.nansum(values, 1, out=out)
    assert torch.equal(out.cpu(), torch.nansum(values, 1).cpu())
