"""Sparse COO tensors live on the card and give the CPU's results."""

import pytest
import torch


def example(dtype=torch.float64, hybrid=False):
    indices = torch.tensor([[0, 2, 0, 1], [1, 0, 1, 2]])  # (0, 1) twice
    values = torch.arange(1, 9, dtype=dtype).reshape(4, 2) if hybrid else torch.arange(1, 5, dtype=dtype)
    size = (3, 4, 2) if hybrid else (3, 4)
    return torch.sparse_coo_tensor(indices, values, size)


def same(have, want):
    assert have.layout == want.layout
    assert have.dtype == want.dtype
    assert have.shape == want.shape
    if want.layout == torch.sparse_coo:
        assert have.device.type == have._indices().device.type == have._values().device.type == "musa"
        assert have.is_coalesced() == want.is_coalesced()
        assert torch.equal(have._indices().cpu(), want._indices())
        assert torch.equal(have._values().cpu(), want._values())
    else:
        assert have.device.type == "musa"
        assert torch.equal(have.cpu(), want)


@pytest.mark.parametrize("hybrid", [False, True])
def test_made_moved_and_read(hybrid):
    want = example(hybrid=hybrid)
    have = want.to("musa")
    same(have, want)
    assert have.device == torch.device("musa", 0)
    assert (have._nnz(), have.sparse_dim(), have.dense_dim()) == (4, 2, int(hybrid))
    same(torch.sparse_coo_tensor(want._indices().to("musa"), want._values().to("musa"), want.shape), want)
    same(torch.sparse_coo_tensor(want._indices(), want._values(), want.shape, device="musa"), want)
    same(have.clone(), want)
    back = have.cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back.to_dense(), want.to_dense())
    assert "musa:0" in repr(have)


OPERATIONS = {
    "coalesce": lambda x: x.coalesce(),
    "indices": lambda x: x.coalesce().indices(),
    "values": lambda x: x.coalesce().values(),
    "to_dense": lambda x: x.to_dense(),
    "dense_to_sparse": lambda x: x.to_dense().to_sparse(),
    "dense_to_sparse_1": lambda x: x.to_dense().to_sparse(1),
    "transpose": lambda x: x.t(),
    "add": lambda x: x + x,
    "add_dense": lambda x: x.to_dense() + x,
    "sub": lambda x: x - 2 * x,
    "mul": lambda x: x.coalesce() * x.coalesce(),
    "mul_scalar": lambda x: x * 3,
    "div_scalar": lambda x: x / 3,
    "neg": lambda x: -x.coalesce(),
    "abs": lambda x: x.coalesce().abs(),
    "sqrt": lambda x: x.coalesce().sqrt(),
    "pow": lambda x: x.coalesce().pow(2),
    "sum": lambda x: torch.sparse.sum(x),
    "sum_dim": lambda x: torch.sparse.sum(x, 0),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "mm": lambda x: torch.sparse.mm(x, x.to_dense().t()),
    "mm_sparse": lambda x: torch.sparse.mm(x, x.t()),
    "matmul": lambda x: x @ x.to_dense().t(),
    "addmm": lambda x: torch.sparse.addmm(x.to_dense() @ x.to_dense().t(), x, x.to_dense().t()),
    "mv": lambda x: x @ x.to_dense()[0],
    "cat": lambda x: torch.cat([x, x]),
    "index_select": lambda x: x.index_select(0, torch.tensor([2, 0], device=x.device)),
    "select": lambda x: x.coalesce()[0],
    "narrow": lambda x: x.narrow_copy(0, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "sparse_mask": lambda x: x.to_dense().sparse_mask(x.coalesce()),
    "zeros_like": lambda x: torch.zeros_like(x),
    "float": lambda x: x.float(),
    "norm": lambda x: x.coalesce().norm(),
    "empty": lambda x: torch.zeros(2, 3, layout=torch.sparse_coo, device=x.device),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_equals_cpu(name):
    operation = OPERATIONS[name]
    same(operation(example().to("musa")), operation(example()))


INPLACE = {
    "add_": lambda x: x.add_(x.clone()),
    "mul_": lambda x: x.mul_(2),
    "neg_": lambda x: x.coalesce().neg_(),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(example().to(x.device) * 2),
    "sparse_resize_": lambda x: x.sparse_resize_((5, 6), 2, 0),
    "values": lambda x: (x._values().add_(1), x)[1],
}


@pytest.mark.parametrize("name", INPLACE)
def test_in_place_equals_cpu(name):
    want, have = example(), example().to("musa")
    result = INPLACE[name](have)
    same(result, INPLACE[name](want))
    if name != "neg_":
        assert result is have


def test_out():
    a = example().to("musa")
    dense = a.to_dense().t().contiguous()
    out = torch.empty(0, dtype=torch.float64, device="musa")
    torch.mm(a, dense, out=out)
    same(out, example() @ example().to_dense().t())


def test_backward():
    grads = []
    for device in ("cpu", "musa"):
        x = example().to(device).coalesce().requires_grad_()
        d = torch.arange(8, dtype=torch.float64, device=device).reshape(4, 2).requires_grad_()
        torch.sparse.mm(x, d).square().sum().backward()
        grads.append((x.grad.to_dense().cpu(), d.grad.cpu()))
    assert torch.equal(grads[0][0], grads[1][0])
    assert torch.equal(grads[0][1], grads[1][1])


def test_sparse_embedding_trains_as_on_cpu():
    weights = []
    for device in ("cpu", "musa"):
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(10, 4, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 3, 1], device=device)).square().sum().backward()
            assert embedding.weight.grad.is_sparse
            optimizer.step()
        weights.append(embedding.weight.detach().cpu())
    assert torch.equal(*weights)


def test_inference_mode():
    with torch.inference_mode():
        x = example().to("musa")
        same(x.coalesce(), example().coalesce())


def test_devices_must_match():
    with pytest.raises(RuntimeError, match="same device"):
        torch.sparse.mm(example().to("musa"), example().to_dense().t())
    with pytest.raises(RuntimeError, match="device"):
        torch.sparse_coo_tensor(example()._indices(), example()._values().to("musa"), device="musa") + example()


def dense():
    return torch.eye(4, device="musa")


REFUSED = {
    "csr": (lambda: dense().to_sparse_csr(), "CSR"),
    "csc": (lambda: dense().to_sparse_csc(), "CSR"),
    "bsr": (lambda: dense().to_sparse_bsr((2, 2)), "CSR"),
    "coo_to_csr": (lambda: dense().to_sparse().to_sparse_csr(), "CSR"),
    "csr_to_musa": (lambda: torch.eye(4).to_sparse_csr().to("musa"), "CSR"),
    "csr_tensor": (
        lambda: torch.sparse_csr_tensor(
            torch.tensor([0, 1], device="musa"), torch.tensor([0], device="musa"), torch.ones(1, device="musa"), (1, 1)
        ),
        "CSR",
    ),
    "quantize": (lambda: torch.quantize_per_tensor(dense(), 0.1, 0, torch.qint8), "quantized"),
    "quantized_to_musa": (
        lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8).to("musa"),
        "quantized",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_layouts_raise_one_clear_error(case):
    make, kind = REFUSED[case]
    with pytest.raises(NotImplementedError, match=f"{kind}.* not supported on musa"):
        make()
