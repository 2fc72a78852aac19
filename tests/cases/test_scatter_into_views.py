"""Writes through views reach the elements of the view and nothing beside them."""

import itertools
import os

import pytest
import torch

INDEX = torch.tensor([[0, 1], [2, 0], [1, 2]])
SOURCE = torch.tensor([[1, 4], [2, 5], [3, 6]])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]  # fmt: skip


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t()


def gapped(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros(tensor.shape[0], 2 * tensor.shape[1] + 1, dtype=tensor.dtype, device=tensor.device)
    view = wide[:, 1::2]
    view.copy_(tensor)
    return view


LAYOUTS = [contiguous, transposed, gapped]
SCATTER = {
    "scatter": lambda t, i, s: t.scatter_(0, i, s),
    "scatter_add": lambda t, i, s: t.scatter_add_(0, i, s),
    "scatter_reduce_amax": lambda t, i, s: t.scatter_reduce_(0, i, s, "amax"),
    "scatter_reduce_prod": lambda t, i, s: t.scatter_reduce_(0, i, s, "prod"),
    "index_add": lambda t, i, s: t.index_add_(0, i[:, 0], s),
    "index_copy": lambda t, i, s: t.index_copy_(0, i[:, 0], s),
    "index_fill": lambda t, i, s: t.index_fill_(0, i[:, 0], 1),
    "index_put": lambda t, i, s: t.index_put_((i[:, 0],), s),
    "index_put_accumulate": lambda t, i, s: t.index_put_((i[:, 0],), s, accumulate=True),
    "masked_fill": lambda t, i, s: t.masked_fill_(i > 0, 1),
    "masked_scatter": lambda t, i, s: t.masked_scatter_(i > 0, s),
    "copy": lambda t, i, s: t.copy_(s),
    "setitem": lambda t, i, s: t.__setitem__((slice(None), 0), s[:, 1]),
    "fill_diagonal": lambda t, i, s: t.fill_diagonal_(1),
    "add": lambda t, i, s: t.add_(s),
}
NO_COMPLEX = {"scatter_reduce_amax"}
if os.environ.get("TORCH_MUSA_SIM_STRICT") == "1":
    NO_COMPLEX.add("scatter_reduce_prod")  # the CPU's kernel takes them, CUDA's doesn't


@pytest.mark.parametrize("name", SCATTER)
def test_every_layout_of_every_operand(name):
    for dtype in DTYPES:
        if dtype.is_complex and name in NO_COMPLEX:
            continue
        expected = torch.zeros(3, 2, dtype=dtype)
        SCATTER[name](expected, INDEX, SOURCE.to(dtype))
        for target_layout, index_layout, source_layout in itertools.product(LAYOUTS, repeat=3):
            target = target_layout(torch.zeros(3, 2, dtype=dtype, device="musa"))
            SCATTER[name](target, index_layout(INDEX.to("musa")), source_layout(SOURCE.to("musa", dtype)))
            which = f"{dtype} {target_layout.__name__} {index_layout.__name__} {source_layout.__name__}"
            assert torch.equal(target.cpu(), expected), which
            if target_layout is gapped:
                assert not target._base[:, ::2].any(), f"{which}: elements beside the view changed"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", range(5))
def test_odd_offsets_leave_the_neighbours_alone(dtype, offset):
    index = torch.tensor([0, 2], device="musa")
    ones = torch.ones(2, dtype=dtype, device="musa")
    writes = {
        "scatter_add_": lambda view: view.scatter_add_(0, index, ones),
        "index_add_": lambda view: view.index_add_(0, index, ones),
        "index_put_": lambda view: view.index_put_((index,), ones, accumulate=True),
        "index_copy_": lambda view: view.index_copy_(0, index, ones),
        "masked_fill_": lambda view: view.masked_fill_(torch.tensor([1, 0, 1, 0], device="musa").bool(), 1),
    }
    for name, write in writes.items():
        whole = torch.zeros(9, dtype=dtype, device="musa")
        write(whole.narrow(0, offset, 4))
        assert whole.cpu().nonzero().flatten().tolist() == [offset, offset + 2], name


def test_masked_fill_of_a_permuted_tensor():
    expected = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    x = expected.to("musa").clone()
    assert x.stride() == expected.clone().stride()
    x.masked_fill_(x > 7, -1.0)
    assert torch.equal(x.cpu(), expected.masked_fill(expected > 7, -1.0))


def test_overlapping_target_is_refused():
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        torch.zeros(1, device="musa").expand(4).add_(torch.ones(4, device="musa"))
    x = torch.arange(6.0, device="musa")
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        torch.add(x[:-1], 1, out=x[1:])
