"""Operators that generated code hands to the card: those of other packages, and those only the card has."""

import pytest
import torch
from compiled import MUSA, assert_close, regions


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


def test_operator_with_dtypes_that_only_the_card_takes():
    """Mixture-of-experts models of transformers count their experts in int32 on every device but the cpu."""

    @torch.compile(fullgraph=True)
    def f(experts, x):
        return torch.histc(experts.int(), bins=4, min=0, max=3).cumsum(0), torch.view_as_complex(x).nansum()

    x = torch.tensor([[1.0, 2], [float("nan"), 3], [5, 6]])
    counts, total = f(torch.tensor([1, 1, 3, 0], device=MUSA), x.to(MUSA))
    assert_close(counts, torch.tensor([1, 3, 3, 4]), check_dtype=False)
    assert total.item() == 6 + 8j
    assert len(regions()) == 1


def test_operator_whose_decomposition_asks_what_the_device_can_do():
    f = torch.compile(lambda x, mask: x.masked_scatter(mask, x * 2) + 1, fullgraph=True)
    x, mask = torch.randn(4, 4), torch.randn(4, 4) > 0
    assert_close(f(x.to(MUSA), mask.to(MUSA)), x.masked_scatter(mask, x * 2) + 1)
    assert len(regions()) == 1
