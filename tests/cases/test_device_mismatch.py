"""Tensors on different devices don't mix, except where CUDA lets them: cpu indices and 0-dim cpu operands."""

import pytest
import torch
import torch.nn.functional as F

GRID = torch.arange(12.0).reshape(3, 4)


def musa(value, index=0):
    return torch.as_tensor(value).to(f"musa:{index}")


ALLOWED = {
    "cpu_index": (lambda x: x[torch.tensor([2, 0])], lambda x: x[[2, 0]]),
    "cpu_index_of_a_later_dim": (lambda x: x[:, torch.tensor([1])], lambda x: x[:, [1]]),
    "cpu_mask": (lambda x: x[torch.tensor([True, False, True])], lambda x: x[[0, 2]]),
    "cpu_and_device_index": (lambda x: x[torch.tensor([1]), musa([2])], lambda x: x[[1], [2]]),
    "0_dim_cpu_operand": (lambda x: x + torch.tensor(2.0), lambda x: x + 2),
    "0_dim_cpu_first": (lambda x: torch.tensor(2.0) * x, lambda x: 2 * x),
    "0_dim_cpu_comparison": (lambda x: x > torch.tensor(5.0), lambda x: x > 5),
    "0_dim_cpu_in_where": (lambda x: torch.where(x > 5, x, torch.tensor(0.0)), lambda x: torch.where(x > 5, x, 0.0)),
    "0_dim_cpu_in_masked_fill": (
        lambda x: x.masked_fill(x > 5, torch.tensor(-1.0)),
        lambda x: x.masked_fill(x > 5, -1.0),
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_mixture(name):
    on_device, on_cpu = ALLOWED[name]
    result = on_device(musa(GRID))
    assert result.device == torch.device("musa:0")
    assert torch.equal(result.cpu(), on_cpu(GRID))


def test_assignment_through_a_cpu_index():
    x = musa(GRID)
    x[torch.tensor([1])] = 5.0
    x[torch.tensor([False, False, True])] = torch.tensor(7.0)
    assert x[1:].tolist() == [[5.0] * 4, [7.0] * 4]


# Each takes a tensor on one device (3x4, float) and makes the other tensors it needs with `other`.
REFUSED = {
    "add": lambda x, other: x + other(GRID),
    "add_": lambda x, other: x.add_(other(GRID)),
    "compare": lambda x, other: x > other(GRID),
    "mm": lambda x, other: x @ other(GRID.T),
    "addmm": lambda x, other: torch.addmm(other(torch.ones(3, 3)), x, x.T),
    "bmm": lambda x, other: torch.bmm(x[None], other(GRID.T[None])),
    "cat": lambda x, other: torch.cat([x, other(GRID)]),
    "stack": lambda x, other: torch.stack([x, other(GRID)]),
    "where": lambda x, other: torch.where(x > 0, x, other(GRID)),
    "where_condition": lambda x, other: torch.where(other(GRID > 0), x, x),
    "linear": lambda x, other: F.linear(x, other(GRID)),
    "linear_bias": lambda x, other: F.linear(x, x, other(torch.ones(3))),
    "layer_norm": lambda x, other: F.layer_norm(x, (4,), other(torch.ones(4))),
    "embedding": lambda x, other: F.embedding(other(torch.tensor([1])), x),
    "embedding_weight": lambda x, other: F.embedding(x[0].long().clamp(0, 2), other(GRID)),
    "index_add": lambda x, other: x.index_add_(0, other(torch.tensor([0])), x[:1].clone()),
    "index_select": lambda x, other: x.index_select(0, other(torch.tensor([0]))),
    "gather": lambda x, other: x.gather(1, other(torch.zeros(3, 1, dtype=torch.long))),
    "scatter": lambda x, other: x.scatter(1, other(torch.zeros(3, 1, dtype=torch.long)), 1.0),
    "take": lambda x, other: x.take(other(torch.tensor([0]))),
    "masked_select": lambda x, other: x.masked_select(other(GRID > 2)),
    "masked_fill": lambda x, other: x.masked_fill(other(GRID > 2), 1.0),
    "index_put_values": lambda x, other: x.index_put_((x[0, :1].long(),), other(GRID[:1])),
    "equal": lambda x, other: torch.equal(x, other(GRID)),
    "cross_entropy": lambda x, other: F.cross_entropy(x, other(torch.tensor([0, 1, 2]))),
    "sdpa": lambda x, other: F.scaled_dot_product_attention(x[None], other(GRID[None]), x[None]),
    "conv1d": lambda x, other: F.conv1d(x[None], other(torch.ones(2, 3, 2))),
    "lerp": lambda x, other: x.lerp(other(GRID), 0.5),
    "foreach": lambda x, other: torch._foreach_add([x], [other(GRID)]),
    "out": lambda x, other: torch.mul(x, 2, out=other(torch.empty(3, 4))),
    "einsum": lambda x, other: torch.einsum("ij,ij->i", x, other(GRID)),
    "searchsorted": lambda x, other: torch.searchsorted(x, other(GRID)),
    "cdist": lambda x, other: torch.cdist(x, other(GRID)),
    "grouped_mm": lambda x, other: torch._grouped_mm(
        x.bfloat16().repeat(1, 4), other(torch.ones(2, 16, 8).bfloat16()), offs=torch.tensor([1, 3]).int().to(x.device)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_cpu_tensor_beside_a_device_tensor(name):
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        REFUSED[name](musa(GRID), lambda value: value)


@pytest.mark.parametrize("name", REFUSED)
def test_device_tensor_beside_a_cpu_tensor(name):
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        REFUSED[name](GRID.clone(), musa)


@pytest.mark.parametrize("name", REFUSED)
def test_two_cards(name):
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        REFUSED[name](musa(GRID), lambda value: musa(value, 1))


def test_both_devices_are_named():
    with pytest.raises(RuntimeError, match=r"same device.*musa:0.*cpu|same device.*cpu.*musa:0"):
        musa(GRID) + GRID


@pytest.mark.parametrize("index", [torch.tensor([0]), torch.tensor([True, False, True])], ids=["index", "mask"])
def test_index_must_be_on_cpu_or_beside_the_indexed(index):
    rule = "indices should be either on cpu or on the same device as the indexed tensor"
    with pytest.raises(RuntimeError, match=rule):
        GRID[musa(index)]
    with pytest.raises(RuntimeError, match=rule):
        musa(GRID)[musa(index, 1)]
    with pytest.raises(RuntimeError, match=r"(?i)device"):
        GRID.clone()[musa(index)] = 1.0


def test_moving_between_cards():
    x, y = musa(GRID), musa(GRID, 1)
    result = x.to(y.device) + y
    assert result.device == torch.device("musa:1")
    assert torch.equal(result.cpu(), GRID + GRID)
