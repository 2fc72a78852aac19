"""torch.autocast("musa") casts exactly the operators that CUDA's autocast casts, and casts them the same way."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

DEVICE = "musa"
LOW = [torch.bfloat16, torch.float16]

# Registered for CUDA's own library only; no other device has these operators.
CUDA_ONLY = {"cudnn_convolution", "cudnn_convolution_transpose"}
REFUSED = {"binary_cross_entropy"}


def floats(*shape: int) -> torch.Tensor:
    """Values in [0.25, 0.75]: inside the domain of every function below."""
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape).mul(7) % 11).float().div(22).add(0.25)


def longs(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def signs(*shape: int) -> torch.Tensor:
    return torch.where(floats(*shape) > 0.5, 1.0, -1.0)


def recurrent(gates: int) -> tuple:
    hidden, inputs = 3, 4
    return (floats(2, inputs), floats(2, hidden), floats(gates * hidden, inputs), floats(gates * hidden, hidden))


def lstm(gates: int = 4) -> tuple:
    x, h, w_input, w_hidden = recurrent(gates)
    return (x, [h, h.clone()], w_input, w_hidden)


MATRIX, VECTOR, IMAGE = floats(4, 4), floats(4), floats(1, 2, 6, 6)
CONV_TAIL = ([1], [0], [1], False, [0], 1)

# Arguments on the CPU in float32, by registered name.
LOWER_PRECISION: dict[str, tuple] = {
    "_convolution.deprecated": (floats(1, 2, 6), floats(3, 2, 3), None, *CONV_TAIL, False, False, True),
    "_convolution": (floats(1, 2, 6), floats(3, 2, 3), None, *CONV_TAIL, False, False, True, True),
    "convolution": (floats(1, 2, 6), floats(3, 2, 3), None, *CONV_TAIL),
    "conv1d": (floats(1, 2, 6), floats(3, 2, 3)),
    "conv2d": (IMAGE, floats(3, 2, 3, 3)),
    "conv3d": (floats(1, 2, 4, 4, 4), floats(3, 2, 3, 3, 3)),
    "conv_tbc": (floats(6, 2, 4), floats(3, 4, 5), floats(5)),
    "conv_transpose1d": (floats(1, 2, 6), floats(2, 3, 3)),
    "conv_transpose2d.input": (IMAGE, floats(2, 3, 3, 3)),
    "conv_transpose3d.input": (floats(1, 2, 4, 4, 4), floats(2, 3, 3, 3, 3)),
    "prelu": (MATRIX - 0.5, floats(1)),
    "addmm": (MATRIX, MATRIX, MATRIX),
    "addmv": (VECTOR, MATRIX, VECTOR),
    "addr": (MATRIX, VECTOR, VECTOR),
    "matmul": (MATRIX, MATRIX),
    "einsum": ("ij,jk->ik", [MATRIX, MATRIX]),
    "mm": (MATRIX, MATRIX),
    "mv": (MATRIX, VECTOR),
    "linalg_vecdot": (MATRIX, MATRIX),
    "linear": (MATRIX, MATRIX, VECTOR),
    "addbmm": (MATRIX, floats(2, 4, 4), floats(2, 4, 4)),
    "baddbmm": (floats(2, 4, 4), floats(2, 4, 4), floats(2, 4, 4)),
    "bmm": (floats(2, 4, 4), floats(2, 4, 4)),
    "chain_matmul": ([MATRIX, MATRIX, MATRIX],),
    "linalg_multi_dot": ([MATRIX, MATRIX, MATRIX],),
    "_thnn_fused_lstm_cell": (floats(2, 12), floats(2, 12), floats(2, 3)),
    "_thnn_fused_gru_cell": (floats(2, 9), floats(2, 9), floats(2, 3)),
    "lstm_cell": lstm(),
    "gru_cell": recurrent(3),
    "rnn_tanh_cell": recurrent(1),
    "rnn_relu_cell": recurrent(1),
    "_scaled_dot_product_flash_attention": (floats(1, 2, 4, 8), floats(1, 2, 4, 8), floats(1, 2, 4, 8)),
    "scaled_dot_product_attention": (floats(1, 2, 4, 8), floats(1, 2, 4, 8), floats(1, 2, 4, 8)),
}

FLOAT32: dict[str, tuple] = {
    **dict.fromkeys(["acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p"], (MATRIX,)),
    **dict.fromkeys(["reciprocal", "rsqrt", "sinh", "tan", "softplus"], (MATRIX,)),
    "pow.Tensor_Scalar": (MATRIX, 2),
    "pow.Tensor_Tensor": (MATRIX, MATRIX),
    "pow.Scalar": (2, MATRIX),
    "layer_norm": (MATRIX, [4], VECTOR, VECTOR),
    "native_layer_norm": (MATRIX, [4], VECTOR, VECTOR, 1e-5),
    "rms_norm": (MATRIX, [4], VECTOR),
    "group_norm": (IMAGE, 2),
    "frobenius_norm.dim": (MATRIX, [1]),
    "nuclear_norm": (MATRIX,),
    "nuclear_norm.dim": (MATRIX, [0, 1]),
    "cosine_similarity": (MATRIX, MATRIX.flip(1)),
    "poisson_nll_loss": (MATRIX, MATRIX, True, False, 1e-8, 1),
    "cosine_embedding_loss": (MATRIX, MATRIX.flip(1), signs(4)),
    "nll_loss": (MATRIX, longs(0, 1, 2, 3)),
    "nll_loss2d": (IMAGE, torch.zeros(1, 6, 6, dtype=torch.long)),
    "hinge_embedding_loss": (MATRIX, signs(4, 4)),
    "kl_div": (MATRIX, MATRIX.flip(1)),
    "l1_loss": (MATRIX, MATRIX.flip(1)),
    "smooth_l1_loss": (MATRIX, MATRIX.flip(1)),
    "huber_loss": (MATRIX, MATRIX.flip(1)),
    "mse_loss": (MATRIX, MATRIX.flip(1)),
    "margin_ranking_loss": (VECTOR, VECTOR.flip(0), signs(4)),
    "multilabel_margin_loss": (MATRIX, torch.tensor([[0, 1, -1, -1]] * 4)),
    "soft_margin_loss": (MATRIX, signs(4, 4)),
    "triplet_margin_loss": (MATRIX, MATRIX.flip(1), MATRIX.flip(0)),
    "multi_margin_loss": (MATRIX, longs(0, 1, 2, 3)),
    "binary_cross_entropy_with_logits": (MATRIX, MATRIX.flip(1)),
    "dist": (MATRIX, MATRIX.flip(1)),
    "pdist": (MATRIX,),
    "cdist": (MATRIX, MATRIX.flip(1)),
    "renorm": (MATRIX, 2, 0, 1.0),
    "logsumexp": (MATRIX, [1]),
    "upsample_nearest1d": (floats(1, 2, 6), [9]),
    "_upsample_nearest_exact1d": (floats(1, 2, 6), [9]),
    "upsample_nearest2d": (IMAGE, [9, 9]),
    "_upsample_nearest_exact2d": (IMAGE, [9, 9]),
    "upsample_nearest3d": (floats(1, 2, 4, 4, 4), [6, 6, 6]),
    "_upsample_nearest_exact3d": (floats(1, 2, 4, 4, 4), [6, 6, 6]),
    "upsample_linear1d": (floats(1, 2, 6), [9], False),
    "upsample_bilinear2d": (IMAGE, [9, 9], False),
    "_upsample_bilinear2d_aa": (IMAGE, [4, 4], False),
    "upsample_trilinear3d": (floats(1, 2, 4, 4, 4), [6, 6, 6], False),
    "upsample_bicubic2d": (IMAGE, [9, 9], False),
    "_upsample_bicubic2d_aa": (IMAGE, [4, 4], False),
    # The result dtype is appended to the call for these two.
    "norm.Scalar": (MATRIX, 2),
    "norm.ScalarOpt_dim": (MATRIX, 2, [1], False),
}

# Reductions with a dtype argument: float32 unless the caller names a dtype.
FLOAT32_UNLESS_ASKED: dict[str, tuple] = {
    "prod": (MATRIX,),
    "prod.dim_int": (MATRIX, 1),
    "softmax.int": (MATRIX, 1),
    "log_softmax.int": (MATRIX, 1),
    "cumprod": (MATRIX, 1),
    "cumsum": (MATRIX, 1),
    "linalg_vector_norm": (MATRIX,),
    "linalg_matrix_norm": (MATRIX, 1),  # for 2 torch refuses 16-bit input even when it is told to compute in float32
    "linalg_matrix_norm.str_ord": (MATRIX,),
    "sum": (MATRIX,),
    "sum.dim_IntList": (MATRIX, [1]),
}

PROMOTE: dict[str, tuple] = {
    "addcdiv": (MATRIX, MATRIX, MATRIX),
    "addcmul": (MATRIX, MATRIX, MATRIX),
    "atan2": (MATRIX, MATRIX),
    "bilinear": (floats(2, 3), floats(2, 4), floats(5, 3, 4), floats(5)),
    "cross": (floats(4, 3), floats(4, 3).flip(1)),
    "dot": (VECTOR, VECTOR),
    "vdot": (VECTOR, VECTOR),
    "grid_sampler": (IMAGE, floats(1, 5, 5, 2), 0, 0, False),
    "index_put": (MATRIX, [longs(0, 2)], floats(2, 4)),
    "tensordot": (MATRIX, MATRIX, [1], [0]),
    "scatter_add": (MATRIX, 0, torch.zeros(4, 4, dtype=torch.long), MATRIX),
}

ALL = {**LOWER_PRECISION, **FLOAT32, **FLOAT32_UNLESS_ASKED, **PROMOTE}


def registered(key: str) -> set[str]:
    return {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
        if name.startswith("aten::")
    }


def overload(name: str) -> Callable[..., Any]:
    base, _, variant = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), variant or "default")


def place(value: Any, dtypes: Callable[[], torch.dtype]) -> Any:
    """Arguments on the device; each floating tensor gets the next of `dtypes`."""
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE, dtypes() if value.is_floating_point() else value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(place(entry, dtypes) for entry in value)
    return value


def results(value: Any) -> list[torch.Tensor]:
    flat = value if isinstance(value, (tuple, list)) else [value]
    flat = flat[:1] if len(flat) == 9 else flat  # fused attention: the others tell of its state
    return [t for t in flat if isinstance(t, torch.Tensor) and t.is_floating_point()]


def cast_to(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return type(value)(cast_to(entry, dtype) for entry in value) if isinstance(value, (list, tuple)) else value


def expect_cast(name: str, given: Callable[[], torch.dtype], cast: torch.dtype, low: torch.dtype) -> None:
    """Under autocast the operator gives what it gives outside of it for the same arguments cast to `cast`."""
    op, args = overload(name), place(ALL[name], given)
    wanted = op(*cast_to(args, cast))
    with torch.autocast(DEVICE, dtype=low):
        got = op(*args)
    assert results(got), name
    for actual, expected in zip(results(got), results(wanted), strict=True):
        assert actual.dtype == expected.dtype == cast, name
        assert torch.equal(actual.cpu().nan_to_num(), expected.cpu().nan_to_num()), name


def test_same_operators_as_cuda():
    assert registered("AutocastPrivateUse1") == registered("AutocastCUDA") - CUDA_ONLY


def test_every_operator_is_checked_below():
    assert set(ALL) | REFUSED == registered("AutocastPrivateUse1")


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", LOWER_PRECISION)
def test_matrix_products_run_in_low_precision(name, low):
    expect_cast(name, lambda: torch.float32, low, low)


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", FLOAT32)
def test_sensitive_operators_run_in_float32(name, low):
    expect_cast(name, lambda: low, torch.float32, low)


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", FLOAT32_UNLESS_ASKED)
def test_reductions_run_in_float32_unless_asked(name, low):
    expect_cast(name, lambda: low, torch.float32, low)
    with torch.autocast(DEVICE, dtype=low):
        asked = overload(name)(*place(FLOAT32_UNLESS_ASKED[name], lambda: low), dtype=torch.float64)
    assert asked.dtype == torch.float64


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", PROMOTE)
def test_mixed_operands_are_promoted_to_the_widest(name, low):
    order = iter([low, *[torch.float32] * 9])
    expect_cast(name, lambda: next(order), torch.float32, low)
    expect_cast(name, lambda: low, low, low)


def test_float64_is_left_alone():
    a = torch.ones(4, 4, device=DEVICE, dtype=torch.float64)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert (a @ a).dtype == a.softmax(-1).dtype == torch.float64


def test_integers_are_left_alone():
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.ones(4, device=DEVICE, dtype=torch.int64).sum().dtype == torch.int64


def test_binary_cross_entropy_is_refused_with_the_way_out():
    p = torch.full((4,), 0.5, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.float16):
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(p, p)
        assert F.binary_cross_entropy_with_logits(p, p).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert F.binary_cross_entropy(p, p).dtype == torch.float32


def test_type_promotion_between_results_of_autocast():
    a = torch.ones(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        low = a @ a
        assert (low + a).dtype == torch.float32
        assert (low + 1).dtype == torch.bfloat16
        assert torch.cat([low, a]).dtype == torch.float32
        assert torch.stack([low, a]).dtype == torch.float32


def test_regions_nest_and_leave_no_state():
    a = torch.ones(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(DEVICE)
        assert torch.get_autocast_dtype(DEVICE) == torch.bfloat16
        with torch.autocast(DEVICE, dtype=torch.float16):
            assert (a @ a).dtype == torch.float16
        with torch.autocast(DEVICE, enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled(DEVICE)
    assert (a @ a).dtype == torch.float32


def test_regions_of_other_devices_are_separate():
    a, b = torch.ones(4, 4, device=DEVICE), torch.ones(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32
        assert (b @ b).dtype == torch.bfloat16
    with torch.autocast(DEVICE, dtype=torch.float16):
        assert (a @ a).dtype == torch.float16
        assert (b @ b).dtype == torch.float32


def test_gradients_keep_the_parameters_dtype():
    layer = torch.nn.Linear(4, 4).to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = layer(torch.ones(3, 4, device=DEVICE)).sum()
    loss.backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32


def test_a_weight_is_cast_once_per_region():
    weight = torch.ones(4, 4, device=DEVICE, requires_grad=True)
    x = torch.ones(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        casts = [node.next_functions[1][0] for node in ((x @ weight).grad_fn, (x @ weight).grad_fn)]
    assert casts[0] is casts[1]
    with torch.autocast(DEVICE, dtype=torch.bfloat16, cache_enabled=False):
        casts = [node.next_functions[1][0] for node in ((x @ weight).grad_fn, (x @ weight).grad_fn)]
    assert casts[0] is not casts[1]


def test_default_dtype_is_torchs():
    a = torch.ones(4, 4, device=DEVICE)
    with torch.autocast(DEVICE):
        assert (a @ a).dtype == torch.float16


def test_unsupported_dtype_warns_and_switches_autocast_off():
    a = torch.ones(4, 4, device=DEVICE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast(DEVICE, dtype=torch.float64):
            assert (a @ a).dtype == torch.float32
    assert any("float64" in str(w.message) or "not supported" in str(w.message) for w in caught)


def test_supported_dtypes_are_named():
    assert {torch.float16, torch.bfloat16} <= set(torch.musa.get_amp_supported_dtype())


@pytest.mark.parametrize("low", LOW, ids=str)
def test_functional_layers(low):
    x = torch.rand(2, 3, 8, device=DEVICE)
    with torch.autocast(DEVICE, dtype=low):
        assert F.scaled_dot_product_attention(x, x, x).dtype == low
        hidden = x @ x.mT
        assert F.layer_norm(hidden, (3,)).dtype == torch.float32
        assert F.cross_entropy(hidden, torch.zeros(2, 3, dtype=torch.long, device=DEVICE)).dtype == torch.float32
        assert torch.nn.LSTM(8, 4).to(DEVICE)(x)[0].dtype == low


def test_gradient_scaler_trains():
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1).to(DEVICE)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10)
    x, y = torch.ones(8, 4, device=DEVICE), torch.ones(8, 1, device=DEVICE)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = F.mse_loss(layer(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    layer.weight.grad = torch.full_like(layer.weight, torch.inf)
    layer.bias.grad = torch.zeros_like(layer.bias)
    before = layer.weight.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, before)
    assert scaler.get_scale() < 2.0**10
