"""Complex tensors: views stay views, conjugation stays lazy, and the operators of rotary embeddings and FFTs agree."""

import pytest
import torch

GENERATOR = torch.Generator().manual_seed(0)
Z = torch.randn(2, 6, 3, 4, dtype=torch.complex64, generator=GENERATOR)
ROWS = torch.randn(5, 16, generator=GENERATOR)

COMPLEX = {
    "cat_of_transposed": lambda z: torch.cat([z.transpose(1, 2), z.transpose(1, 2)], -1),
    "stack_of_strided": lambda z: torch.stack([z[..., ::2], z[..., 1::2]]),
    "contiguous": lambda z: z.permute(3, 1, 0, 2).contiguous(),
    "product_with_conjugate": lambda z: (z.conj() * z).real,
    "resolve_conj": lambda z: z.conj().resolve_conj(),
    "imag_of_conj": lambda z: z.conj().imag.clone(),
    "resolve_neg": lambda z: z.conj().imag.resolve_neg(),
    "cat_of_conj": lambda z: torch.cat([z.conj(), z]),
    "in_place_on_conj": lambda z: z.clone().conj().mul_(2),
    "abs": lambda z: z.abs(),
    "angle": lambda z: z.angle(),
    "mm_with_adjoint": lambda z: z[0, 0] @ z[0, 1].mH,
    "bmm_with_conj": lambda z: torch.bmm(z[0], z[1].conj().transpose(1, 2)),
    "exp": lambda z: z.exp(),
    "sgn": lambda z: z.sgn(),
    "sum": lambda z: z.sum(1),
    "mean": lambda z: z.mean(),
    "prod": lambda z: z.prod(2),
    "real_times_two": lambda z: z.real * 2,
    "equality": lambda z: z == z.conj(),
    "index": lambda z: z[:, [2, 0]],
    "to_complex128": lambda z: z.to(torch.complex128),
    "where": lambda z: torch.where(z.real > 0, z, z.conj()),
    "polar": lambda z: torch.polar(z.abs(), z.angle()),
    "linalg_inv": lambda z: torch.linalg.inv(z[0, :3, :, :3]),
}
TRANSFORMS = {
    "fft": torch.fft.fft,
    "ifft": torch.fft.ifft,
    "rfft": torch.fft.rfft,
    "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=16),
    "irfft_odd": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=15),
    "hfft": torch.fft.hfft,
    "ihfft": torch.fft.ihfft,
    "fft2": torch.fft.fft2,
    "rfft2": torch.fft.rfft2,
    "fftn": torch.fft.fftn,
    "fft_of_transposed": lambda x: torch.fft.fft(x.t(), dim=0),
    "fft_ortho": lambda x: torch.fft.fft(x, norm="ortho"),
    "fftshift": torch.fft.fftshift,
    "stft": lambda x: torch.stft(x, 8, window=torch.hann_window(8, device=x.device), return_complex=True),
    "istft": lambda x: torch.istft(
        torch.stft(x, 8, window=torch.hann_window(8, device=x.device), return_complex=True),
        8, window=torch.hann_window(8, device=x.device),
    ),
}  # fmt: skip


def check(operation, argument):
    with torch.no_grad():
        actual, expected = operation(argument.to("musa")), operation(argument)
    assert actual.device.type == "musa"
    assert actual.is_conj() == expected.is_conj()
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    if expected.numel():
        assert actual.stride() == expected.stride()


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_operator(name):
    check(COMPLEX[name], Z)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform(name):
    check(TRANSFORMS[name], ROWS)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_rotary_embedding(dtype):
    real = dtype.to_real()
    q, angles = (
        torch.randn(2, 6, 3, 8, dtype=real, generator=GENERATOR),
        torch.randn(6, 4, dtype=real, generator=GENERATOR),
    )

    def rotate(q, angles):
        rotation = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(q.transpose(1, 2).reshape(2, 3, 6, 4, 2))
        return torch.view_as_real(pairs * rotation).flatten(3).transpose(1, 2)

    torch.testing.assert_close(rotate(q.to("musa"), angles.to("musa")).cpu(), rotate(q, angles))


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_copies_in_both_directions(dtype, conjugate):
    z = Z.to(dtype).conj() if conjugate else Z.to(dtype)
    there = z.to("musa")
    assert torch.equal(there.cpu(), z)
    assert torch.equal(there.resolve_conj().cpu(), z.resolve_conj())
    assert torch.equal(torch.zeros_like(there).copy_(z).cpu(), z)
    assert torch.equal(torch.zeros_like(z).copy_(there), z)
    assert torch.equal(there.imag.cpu(), z.imag)


def test_real_and_imaginary_parts_are_views():
    z = Z.to("musa").clone()
    z.real.zero_()
    assert torch.equal(z.imag.cpu(), Z.imag)
    assert not z.real.any().item()
    torch.view_as_real(z)[..., 1] = 3.0
    assert z.imag.eq(3).all().item()
    pairs = torch.zeros(4, 2, device="musa")
    torch.view_as_complex(pairs).add_(1j)
    assert pairs.cpu().tolist() == [[0.0, 1.0]] * 4


def test_conjugate_is_a_view():
    z = Z.to("musa").clone()
    conjugate = z.conj()
    assert conjugate.is_conj()
    assert conjugate.data_ptr() == z.data_ptr()
    z.add_(1j)
    assert torch.equal(conjugate.resolve_conj().cpu(), (Z + 1j).conj().resolve_conj())


def test_gradient():
    z = Z.to("musa").clone().requires_grad_()
    (z.abs() ** 2).sum().backward()
    torch.testing.assert_close(z.grad, 2 * z.detach(), rtol=1e-5, atol=1e-5)
