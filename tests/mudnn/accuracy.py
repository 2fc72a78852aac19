"""The accuracy that kernels owe: against float64 an error of at most 1.5 times that of PyTorch's CPU kernel."""

import torch

FACTOR = 1.5
LARGEST_FACTOR = 2.5  # of one number among many, where chance decides: with random seeds 1.95 was met


def assert_as_accurate(got: torch.Tensor, cpu: torch.Tensor, exact: torch.Tensor) -> None:
    """got: the kernel's result, any device. cpu: PyTorch's CPU result in the same dtype. exact: the float64 result.

    Compares the largest and the root of the mean square of the errors, with a unit and half a unit (of fewer than 64
    numbers a whole one) in the last place of the result's dtype on top, where PyTorch happens to hit the exact value.
    NaN and infinite values must be the same.
    """
    got = got.cpu()
    assert got.dtype == cpu.dtype
    assert got.shape == cpu.shape == exact.shape
    if got.numel() == 0:
        return
    rounded = exact.to(got.dtype)
    finite = torch.isfinite(rounded) & torch.isfinite(cpu)
    torch.testing.assert_close(got[~finite], cpu[~finite], rtol=0, atol=0, equal_nan=True)
    if not finite.any():
        return
    ours = (got[finite].double() - exact[finite]).abs()
    theirs = (cpu[finite].double() - exact[finite]).abs()
    unit = torch.finfo(got.dtype).eps * exact[finite].abs().clamp(min=torch.finfo(got.dtype).tiny)
    largest = (ours - unit).max()
    assert largest <= LARGEST_FACTOR * theirs.max(), f"largest error {ours.max():.3g}, PyTorch's {theirs.max():.3g}"
    mean_square = ours.square().mean().sqrt()
    allowed = FACTOR * theirs.square().mean().sqrt() + unit.square().mean().sqrt() / (2 if finite.sum() >= 64 else 1)
    assert mean_square <= allowed, f"root mean square error {mean_square:.3g}, allowed {allowed:.3g}"
