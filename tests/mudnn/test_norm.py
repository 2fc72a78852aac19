"""layer_norm, rms_norm and torch.ops.musa's norms with a residual, a gate, and for queries and keys."""

import copy
import random
from collections.abc import Callable

import pytest
import torch
from accuracy import assert_as_accurate
from torch.nn import functional

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SHAPES = [(1, 1), (70, 4096), (3, 5), (7, 130), (2, 3, 66), (0, 8), (34,), (5, 9001), (300, 17)]
NORMS = ["layer_norm", "layer_norm without weight", "layer_norm with bias only", "rms_norm", "rms_norm without weight"]
ops = torch.ops.musa


def random_tensors(*sizes: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    seed = random.randrange(2**31)
    print("seed", seed)
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(size, generator=generator) * 2 + 0.5).to(dtype) for size in sizes]


def rms(x: torch.Tensor, weight: torch.Tensor | None, eps: float = 1e-6, offset: float = 0) -> torch.Tensor:
    """The plain formula, in float32 or float64 and rounded at the end."""
    wide = x if x.dtype == torch.float64 else x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (normed if weight is None else normed * (weight.to(wide.dtype) + offset)).to(x.dtype)


def gated(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, kind: str, norm_first: bool) -> torch.Tensor:
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    factor = (functional.silu if kind == "silu" else torch.sigmoid)(gate.to(wide))
    if norm_first:
        return (rms(x.to(wide), weight) * factor).to(x.dtype)
    return rms(x.to(wide) * factor, weight).to(x.dtype)


def norm(name: str) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    def apply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        size = (x.shape[-1],)
        given = None if "without" in name or "only" in name else weight
        if name.startswith("rms"):
            return functional.rms_norm(x, size, given, 1e-6)
        return functional.layer_norm(x, size, given, None if "without" in name else bias, 1e-6)

    return apply


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NORMS)
def test_values_are_as_accurate_as_pytorchs(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensors = random_tensors(shape, shape[-1:], shape[-1:], dtype=dtype)
    got = norm(name)(*[tensor.to("musa") for tensor in tensors])
    exact = norm(name)(*[tensor.double() for tensor in tensors])
    if got.numel() < 4096:  # so few that one difference of nearly equal numbers decides, which is chance
        torch.testing.assert_close(got.cpu().double(), exact, rtol=8 * torch.finfo(dtype).eps, atol=1e-5)
    else:
        assert_as_accurate(got, norm(name)(*tensors), exact)


@pytest.mark.parametrize("shape", [(1, 1 << 18), (6, 70000)])
def test_long_rows_far_from_zero_keep_their_variance(shape: tuple[int, ...]) -> None:
    (x,) = random_tensors(shape, dtype=torch.float32)
    x = x + 1000
    size = shape[-1:]
    got = functional.layer_norm(x.to("musa"), size)
    assert_as_accurate(got, functional.layer_norm(x, size), functional.layer_norm(x.double(), size))


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_those_of_pytorch(dtype: torch.dtype) -> None:
    x, weight, bias = random_tensors((4, 5, 6), (5, 6), (5, 6), dtype=dtype)
    for operand in (weight, weight.float()):
        args = (x, [5, 6], operand, bias.to(operand.dtype), 1e-5)
        ours = torch.native_layer_norm(*[a.to("musa") if isinstance(a, torch.Tensor) else a for a in args])
        for got, cpu in zip(ours, torch.native_layer_norm(*args), strict=True):
            assert got.dtype == cpu.dtype
            torch.testing.assert_close(got.cpu(), cpu)
    got = torch._fused_rms_norm(x.to("musa"), [5, 6], weight.to("musa"), None)
    cpu = torch._fused_rms_norm(x, [5, 6], weight, None)
    torch.testing.assert_close([part.cpu() for part in got], list(cpu))


@pytest.mark.parametrize("dtype", DTYPES)
def test_not_numbers_stay_in_their_row(dtype: torch.dtype) -> None:
    x = torch.ones(4, 70, dtype=dtype)
    x[1, 3] = float("nan")
    x[2, 69] = float("inf")
    for function in (lambda t: functional.layer_norm(t, (70,)), lambda t: functional.rms_norm(t, (70,), None, 1e-6)):
        torch.testing.assert_close(function(x.to("musa")).cpu(), function(x), equal_nan=True)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_as_accurate_as_pytorchs(name: str, dtype: torch.dtype) -> None:
    tensors = random_tensors((61, 2, 350), (350,), (350,), (61, 2, 350), dtype=dtype)

    def gradients(device: str, of: torch.dtype) -> list[torch.Tensor]:
        x, weight, bias, grad = (
            tensor.to(device, of, copy=True).requires_grad_(i < 3) for i, tensor in enumerate(tensors)
        )
        norm(name)(x, weight, bias).backward(grad)
        return [leaf.grad for leaf in (x, weight, bias) if leaf.grad is not None]

    ours, cpu, exact = gradients("musa", dtype), gradients("cpu", dtype), gradients("cpu", torch.float64)
    for got, theirs, right in zip(ours, cpu, exact, strict=True):
        assert_as_accurate(got, theirs, right)


def test_gradients_in_float64_are_those_of_the_formula() -> None:
    x, weight, grad = random_tensors((6, 7), (7,), (6, 7), dtype=torch.float64)
    grads = []
    for device in ("cpu", "musa"):
        leaves = [tensor.to(device, copy=True).requires_grad_() for tensor in (x, weight)]
        functional.rms_norm(leaves[0], (7,), leaves[1]).backward(grad.to(device))
        grads.append([leaf.grad.cpu() for leaf in leaves])
    torch.testing.assert_close(grads[1], grads[0])


def test_rms_norm_has_double_and_forward_derivatives() -> None:
    x, weight = (
        tensor.double().to("musa").requires_grad_() for tensor in random_tensors((3, 5), (5,), dtype=torch.float64)
    )
    torch.autograd.gradcheck(lambda a, b: functional.rms_norm(a, (5,), b, 1e-3), (x, weight), check_forward_ad=True)
    torch.autograd.gradgradcheck(lambda a, b: functional.rms_norm(a, (5,), b, 1e-3), (x, weight))


def test_rms_norm_is_one_operator_with_and_without_gradients() -> None:
    x = torch.randn(4, 8, device="musa", requires_grad=True)
    weight = torch.ones(8, device="musa", requires_grad=True)
    torch.musa.reset_op_statistics()
    functional.rms_norm(x, (8,), weight).sum().backward()
    with torch.inference_mode():
        functional.rms_norm(x, (8,), weight)
    calls = {op.name: (op.calls, op.native_calls) for op in torch.musa.op_statistics()}
    assert calls["aten::_fused_rms_norm"] == (2, 2)
    assert calls["aten::_fused_rms_norm_backward"] == (1, 1)
    assert "aten::rsqrt" not in calls


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 4096), (5, 77), (2, 3, 16), (0, 4), (9,)])
def test_a_residual_is_added_first(shape: tuple[int, ...], dtype: torch.dtype, offset: float) -> None:
    x, residual, weight = random_tensors(shape, shape, shape[-1:], dtype=dtype)
    normed, total = ops.add_rms_norm(*(t.to("musa") for t in (x, residual, weight)), 1e-5, offset)
    assert torch.equal(total.cpu(), x + residual)
    exact = rms((x + residual).double(), weight.double(), 1e-5, offset)
    assert_as_accurate(normed, rms(x + residual, weight, 1e-5, offset), exact)
    in_place, residual_in_place = x.to("musa"), residual.to("musa")
    assert ops.add_rms_norm_(in_place, residual_in_place, weight.to("musa"), 1e-5, offset) is None
    assert torch.equal(in_place, normed)
    assert torch.equal(residual_in_place, total)


def test_a_residual_is_added_in_place_where_rows_are_strided() -> None:
    x, residual, weight = random_tensors((6, 40), (6, 16), (16,), dtype=torch.bfloat16)
    ours, theirs = x.to("musa"), residual.to("musa")
    ops.add_rms_norm_(ours[:, 8:24], theirs, weight.to("musa"))
    assert torch.equal(theirs.cpu(), x[:, 8:24] + residual)
    assert torch.equal(
        ours[:, 8:24].cpu(), ops.add_rms_norm(x[:, 8:24].to("musa"), residual.to("musa"), weight.to("musa"))[0].cpu()
    )
    assert torch.equal(ours[:, :8].cpu(), x[:, :8])
    assert torch.equal(ours[:, 24:].cpu(), x[:, 24:])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("kind", ["silu", "sigmoid"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 4096), (5, 77), (2, 3, 16), (0, 4)])
def test_gated_norms(shape: tuple[int, ...], dtype: torch.dtype, kind: str, norm_first: bool) -> None:
    x, gate, weight = random_tensors(shape, shape, shape[-1:], dtype=dtype)
    got = ops.gated_rms_norm(*(t.to("musa") for t in (x, gate, weight)), 1e-6, kind, norm_first)
    exact = gated(x.double(), gate.double(), weight.double(), kind, norm_first)
    assert_as_accurate(got, gated(x, gate, weight, kind, norm_first), exact)


def test_queries_and_keys_are_normalised_where_they_lie() -> None:
    qkv, q_weight, k_weight = random_tensors((5, (4 + 2 + 2) * 16), (16,), (16,), dtype=torch.bfloat16)
    heads = qkv.view(5, 8, 16)
    on_card = heads.to("musa")
    q, k = ops.qk_norm(on_card[:, :4], on_card[:, 4:6], q_weight.to("musa"), k_weight.to("musa"))
    torch.musa.reset_op_statistics()
    for got, x, weight in ((q, heads[:, :4], q_weight), (k, heads[:, 4:6], k_weight)):
        assert got.is_contiguous()
        assert_as_accurate(got, rms(x, weight), rms(x.double(), weight.double()))


@pytest.mark.parametrize(
    "view",
    [lambda t: t.transpose(0, 1), lambda t: t[..., 1:], lambda t: t[:, 1], lambda t: t[..., ::2], lambda t: t.mT],
)
def test_any_layout_of_rows(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    (x,) = random_tensors((3, 4, 10), dtype=torch.float32)
    got = ops.rms_norm(view(x.to("musa")))
    torch.testing.assert_close(got.cpu(), rms(view(x), None))
    size = view(x).shape[-1:]
    torch.testing.assert_close(
        functional.layer_norm(view(x.to("musa")), size).cpu(), functional.layer_norm(view(x), size)
    )


def test_weights_of_16_bit_rows_may_be_float32() -> None:
    x, weight = random_tensors((5, 70), (70,), dtype=torch.bfloat16)
    weight = weight.float() + 1e-3
    got = ops.rms_norm(x.to("musa"), weight.to("musa"))
    assert got.dtype == torch.bfloat16
    assert_as_accurate(got, rms(x, weight), rms(x.double(), weight.double()))


CALLS = {
    "rms_norm": lambda x, other, weight: ops.rms_norm(x, weight, 1e-3, 1.0),
    "add_rms_norm": lambda x, other, weight: ops.add_rms_norm(x, other, weight, 1e-3),
    "gated_rms_norm": lambda x, other, weight: ops.gated_rms_norm(x, other, weight, 1e-3),
    "gated_rms_norm, gate first": lambda x, other, weight: ops.gated_rms_norm(x, other, weight, 1e-3, "sigmoid", False),
    "qk_norm": lambda x, other, weight: ops.qk_norm(x, other, weight, weight, 1e-3),
}


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(name: str) -> None:
    tensors = [t.requires_grad_() for t in random_tensors((3, 5), (3, 5), (5,), dtype=torch.float64)]
    torch.autograd.gradcheck(CALLS[name], tensors)
    torch.autograd.gradcheck(CALLS[name], [t.detach().to("musa").requires_grad_() for t in tensors])
    for dtype in (torch.float32, torch.bfloat16):
        grads = {}
        for device in ("cpu", "musa"):
            leaves = [t.detach().to(device, dtype).requires_grad_() for t in tensors]
            results = CALLS[name](*leaves)
            sum(
                part.float().pow(2).sum() for part in (results if isinstance(results, tuple) else (results,))
            ).backward()
            grads[device] = [leaf.grad.cpu() for leaf in leaves if leaf.grad is not None]
        torch.testing.assert_close(grads["musa"], grads["cpu"], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("name", CALLS)
def test_results_do_not_depend_on_threads_or_other_rows(name: str) -> None:
    x, other, weight = (t.to("musa") for t in random_tensors((700, 96), (700, 96), (96,), dtype=torch.bfloat16))

    def results(*operands: torch.Tensor) -> list[torch.Tensor]:
        got = CALLS[name](*operands)
        return list(got) if isinstance(got, tuple) else [got]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results(x, other, weight)
        torch.set_num_threads(2)
        two = results(x, other, weight)
    finally:
        torch.set_num_threads(threads)
    row = results(x[5:6], other[5:6], weight)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert all(torch.equal(a[5:6], b) for a, b in zip(one, row, strict=True))


def test_the_weight_gradient_does_not_depend_on_threads() -> None:
    x, grad, weight = (t.to("musa") for t in random_tensors((700, 96), (700, 96), (96,), dtype=torch.float32))
    _, rstd = torch._fused_rms_norm(x, [96], weight, 1e-6)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = torch.ops.aten._fused_rms_norm_backward(grad, x, [96], rstd, weight, [True, True])
        torch.set_num_threads(2)
        two = torch.ops.aten._fused_rms_norm_backward(grad, x, [96], rstd, weight, [True, True])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


@pytest.mark.parametrize("name", CALLS)
def test_runs_on_the_cpu_and_on_meta(name: str) -> None:
    tensors = random_tensors((3, 8), (3, 8), (8,), dtype=torch.float32)
    for got, cpu, meta in zip(
        *(
            results if isinstance(results, tuple) else (results,)
            for results in (CALLS[name](*[t.to(device) for t in tensors]) for device in ("musa", "cpu", "meta"))
        ),
        strict=True,
    ):
        torch.testing.assert_close(got.cpu(), cpu)
        assert (meta.shape, meta.dtype, meta.device.type) == (cpu.shape, cpu.dtype, "meta")


def test_in_place_on_meta_and_versions() -> None:
    x, residual = torch.ones(2, 4, device="meta"), torch.ones(2, 4, device="meta")
    ops.add_rms_norm_(x, residual)
    x, residual = torch.ones(2, 4, device="musa"), torch.ones(2, 4, device="musa")
    versions = x._version, residual._version
    ops.add_rms_norm_(x, residual)
    assert (x._version, residual._version) == (versions[0] + 1, versions[1] + 1)
    with pytest.raises(RuntimeError, match="use add_rms_norm"):
        ops.add_rms_norm_(x.requires_grad_(), residual)


def test_wrong_operands_are_refused() -> None:
    x = torch.ones(2, 4, device="musa")
    with pytest.raises(
        RuntimeError, match=r"x and residual of one shape and dtype, got \[2, 4\] Float and \[4\] Float"
    ):
        ops.add_rms_norm(x, x[0])
    with pytest.raises(RuntimeError, match=r"weight of shape \[4\], the size of the last dimension, got \[3\]"):
        ops.rms_norm(x, torch.ones(3, device="musa"))
    with pytest.raises(RuntimeError, match="and 'sigmoid', got 'relu'"):
        ops.gated_rms_norm(x, x, activation="relu")
    with pytest.raises(RuntimeError, match="same device"):
        ops.gated_rms_norm(x, x.cpu())


def test_is_captured_and_replayed_by_graphs() -> None:
    x, residual = torch.randn(4, 16, device="musa"), torch.randn(4, 16, device="musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        normed, total = ops.add_rms_norm(x, residual)
    x.copy_(torch.randn(4, 16))
    graph.replay()
    expected = ops.add_rms_norm(x, residual)
    assert torch.equal(normed, expected[0])
    assert torch.equal(total, expected[1])


def test_modules_train_alike_on_both_devices() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.RMSNorm(16), torch.nn.Linear(16, 8), torch.nn.LayerNorm(8)
    )
    (x,) = random_tensors((5, 8), dtype=torch.float32)
    other = copy.deepcopy(model).to("musa")
    model(x).square().mean().backward()
    other(x.to("musa")).square().mean().backward()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)
