"""Operators that generated code hands to the card: those of other packages, and those only the card has."""

import pytest
import torch
from compiled import MUSA, assert_close


@pytest.fixture(scope="module")
def library():
    """An operator for musa only, and a mutating one for any device."""

    @torch.library.custom_op("musa_compile_test::scale", mutates_args=(), device_types="musa")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        assert x.device.type == "musa"
        return x * factor

    @scale.register_fake
    def _(x, factor):
        return torch.empty_like(x)

    @torch.library.custom_op("musa_compile_test::bump", mutates_args=("x",))
    def bump(x: torch.Tensor, by: list[torch.Tensor]) -> None:
        assert all(t.device.type == "musa" for t in (x, *by))
        for t in by:
            x.add_(t)

    return torch.ops.musa_compile_test


def test_custom_operator_gets_musa_tensors(library):
    f = torch.compile(lambda x: library.scale(x.sin(), 2.0).cos(), fullgraph=True)
    x = torch.randn(5)
    assert_close(f(x.to(MUSA)), (x.sin() * 2).cos())


def test_mutating_custom_operator_writes_intermediates_and_arguments(library):
    def f(x, y):
        z = x * 2
        library.bump(z, [y, y])
        library.bump(x, [y])
        return z

    x, y = torch.randn(5), torch.randn(5)
    card = x.to(MUSA)
    assert_close(torch.compile(f, fullgraph=True)(card, y.to(MUSA)), x * 2 + y + y)
    assert_close(card, x + y)


def test_operator_without_a_cpu_kernel_for_the_dtype():
    pool = torch.nn.functional.avg_pool3d
    x = torch.randn(1, 1, 4, 4, 4).bfloat16()
    f = torch.compile(lambda x: pool(x, 2) + 1, fullgraph=True)
    assert_close(f(x.to(MUSA)), pool(x.float(), 2).bfloat16() + 1)
