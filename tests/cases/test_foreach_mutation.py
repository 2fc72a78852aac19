"""_foreach_ operators change the tensors of their lists in place, whatever the shapes in the list."""

import pytest
import torch

SHAPES = [(3,), (2, 5), (), (0,), (7, 1, 2)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def filled(value: float, dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.full(shape, value, device="musa", dtype=dtype) for shape in SHAPES]


# (value before, change, value after)
CHANGES = {
    "add_scalar": (1, lambda ts: torch._foreach_add_(ts, 2), 3),
    "add_list": (1, lambda ts: torch._foreach_add_(ts, filled(2, ts[0].dtype), alpha=2), 5),
    "add_itself": (3, lambda ts: torch._foreach_add_(ts, ts), 6),
    "mul_scalar_list": (3, lambda ts: torch._foreach_mul_(ts, [2.0] * len(ts)), 6),
    "mul_tensor": (3, lambda ts: torch._foreach_mul_(ts, torch.tensor(2.0, device="musa", dtype=ts[0].dtype)), 6),
    "div": (6, lambda ts: torch._foreach_div_(ts, 3), 2),
    "sqrt": (9, torch._foreach_sqrt_, 3),
    "neg": (9, torch._foreach_neg_, -9),
    "addcdiv": (3, lambda ts: torch._foreach_addcdiv_(ts, ts, ts, -3.0), 0),
    "addcmul": (3, lambda ts: torch._foreach_addcmul_(ts, ts, ts, 2.0), 21),
    "copy": (3, lambda ts: torch._foreach_copy_(ts, filled(4, ts[0].dtype)), 4),
    "copy_other_dtype": (3, lambda ts: torch._foreach_copy_(ts, filled(4, torch.float64)), 4),
    "lerp": (4, lambda ts: torch._foreach_lerp_(ts, filled(0, ts[0].dtype), 0.5), 2),
    "clamp_max": (4, lambda ts: torch._foreach_clamp_max_(ts, 2.0), 2),
    "maximum": (4, lambda ts: torch._foreach_maximum_(ts, filled(7, ts[0].dtype)), 7),
    "pow": (3, lambda ts: torch._foreach_pow_(ts, 2.0), 9),
    "zero": (4, torch._foreach_zero_, 0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CHANGES)
def test_in_place(name, dtype):
    before, change, after = CHANGES[name]
    tensors = filled(before, dtype)
    pointers, versions = [t.data_ptr() for t in tensors], [t._version for t in tensors]
    change(tensors)
    for tensor in tensors:
        assert torch.equal(tensor.cpu(), torch.full(tensor.shape, after, dtype=dtype))
    assert [t.data_ptr() for t in tensors] == pointers
    assert all(t._version > v for t, v in zip(tensors, versions, strict=True))


def test_views_in_the_list():
    base = torch.zeros(4, 4, device="musa")
    torch._foreach_add_([base[::2, 1], base.t()[3]], 1.0)
    expected = torch.zeros(4, 4)
    torch._foreach_add_([expected[::2, 1], expected.t()[3]], 1.0)
    assert torch.equal(base.cpu(), expected)


def test_norm_gives_a_tensor_per_entry():
    norms = torch._foreach_norm([torch.tensor([3.0, 4.0], device="musa"), torch.zeros(2, device="musa")])
    assert torch.stack(norms).tolist() == [5.0, 0.0]


@pytest.mark.parametrize("foreach", [True, False, None])
def test_gradients_are_clipped_in_place(foreach):
    parameters = [torch.nn.Parameter(torch.zeros(4, device="musa")) for _ in range(3)]
    for parameter in parameters:
        parameter.grad = torch.full((4,), 2.0, device="musa")
    total = torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
    assert total.item() == pytest.approx(48**0.5)
    assert sum((p.grad**2).sum().item() for p in parameters) == pytest.approx(1.0, abs=1e-3)
