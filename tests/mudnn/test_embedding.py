"""F.embedding: rows of a table."""

import pytest
import torch
from torch.nn import functional

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int8]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("indices", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (), (0,), (4, 0)])
def test_rows_are_those_of_the_table(shape: tuple[int, ...], indices: torch.dtype, dtype: torch.dtype) -> None:
    table = torch.arange(33 * 17).reshape(33, 17).remainder(101).to(dtype)
    ids = torch.randint(33, shape, generator=torch.Generator().manual_seed(1)).to(indices)
    got = functional.embedding(ids.to("musa"), table.to("musa"))
    assert torch.equal(got.cpu(), functional.embedding(ids, table))


def test_tables_may_be_strided_and_ids_too() -> None:
    table, ids = torch.randn(9, 12), torch.tensor([[0, 8, 3], [4, 4, 1]])
    for view in (lambda t: t[:, 2:7], lambda t: t[::2], lambda t: t.T, lambda t: t[:, ::3]):
        got = functional.embedding(ids.to("musa").T.clamp(max=4), view(table.to("musa")))
        assert torch.equal(got.cpu(), functional.embedding(ids.T.clamp(max=4), view(table)))


@pytest.mark.parametrize("bad", [33, -1])
def test_ids_outside_of_the_table_are_refused_as_on_the_cpu(bad: int) -> None:
    for device in ("cpu", "musa"):
        with pytest.raises(IndexError, match="index out of range in self"):
            functional.embedding(torch.tensor([0, bad], device=device), torch.ones(33, 4, device=device))


def test_gradients_skip_the_padding() -> None:
    grads = []
    for device in ("cpu", "musa"):
        table = torch.ones(5, 3, device=device, requires_grad=True)
        ids = torch.tensor([1, 1, 4, 0], device=device)
        functional.embedding(ids, table, padding_idx=0).square().sum().backward()
        grads.append(table.grad.cpu())
    assert torch.equal(*grads)
    assert not grads[1][0].any()


def test_the_clock_counts_the_rows_that_are_read() -> None:
    table, ids = torch.ones(1000, 64, device="musa"), torch.arange(10, device="musa")
    torch.musa.reset_op_statistics()
    functional.embedding(ids, table)
    (entry,) = torch.musa.op_statistics()
    assert (entry.name, entry.native_calls, entry.bytes) == ("aten::embedding", 1, 10 * (2 * 64 * 4 + 8))
