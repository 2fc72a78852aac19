"""torch.ops.musa.fused_moe."""

import random

import pytest
import torch
from accuracy import assert_as_accurate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ACTIVATIONS = ["silu", "gelu", "gelu_tanh", "situ"]
F = torch.nn.functional


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    gate, up = gate_up.chunk(2, -1)
    if activation == "situ":
        gate, up = (gate, up) if gate.dtype == torch.float64 else (gate.float(), up.float())
        value = 4 * torch.tanh(gate / 4) * torch.sigmoid(gate) * (25 * torch.tanh(up / 25))
        return value.to(gate_up.dtype)
    if activation == "silu":
        return F.silu(gate) * up
    return F.gelu(gate, approximate="tanh" if activation == "gelu_tanh" else "none") * up


def plain_moe(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    activation: str = "silu",
    shared_gate_up: torch.Tensor | None = None,
    shared_down: torch.Tensor | None = None,
    shared_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Token by token."""
    rows = []
    for token in range(x.size(0)):
        row = torch.zeros_like(x[token])
        for id, weight in zip(ids[token].tolist(), weights[token], strict=True):
            if 0 <= id < gate_up.size(0):
                inner = gated(F.linear(x[token], gate_up[id]), activation)
                row = row + (F.linear(inner, down[id]) * weight).to(x.dtype)
        if shared_gate_up is not None:
            more = F.linear(gated(F.linear(x[token], shared_gate_up), activation), shared_down)
            row = row + (more if shared_scale is None else more * shared_scale[token])
        rows.append(row)
    return torch.stack(rows) if rows else torch.zeros_like(x)


class Inputs:
    """Random operands of a block; `extra` ids beyond the experts mean no expert."""

    def __init__(
        self,
        tokens: int,
        hidden: int,
        inner: int,
        experts: int,
        k: int,
        dtype: torch.dtype,
        shared: int = 0,
        extra: int = 0,
        seed: int | None = None,
    ) -> None:
        seed = random.randrange(2**31) if seed is None else seed
        print("seed", seed)
        generator = torch.Generator().manual_seed(seed)

        def normal(*size: int) -> torch.Tensor:
            return torch.randn(size, generator=generator)

        self.x = normal(tokens, hidden).to(dtype)
        self.gate_up = (normal(experts, 2 * inner, hidden) / hidden**0.5 * 2).to(dtype)
        self.down = (normal(experts, hidden, inner) / max(inner, 1) ** 0.5).to(dtype)
        self.ids = torch.stack(
            [torch.randperm(experts + extra, generator=generator)[:k] for _ in range(tokens)]
            or [torch.zeros(k, dtype=torch.long)]
        )[:tokens]
        self.weights = torch.rand(tokens, k, generator=generator)
        self.options: dict[str, torch.Tensor] = {}
        if shared:
            self.options["shared_gate_up"] = (normal(2 * shared, hidden) / hidden**0.5).to(dtype)
            self.options["shared_down"] = (normal(hidden, shared) / shared**0.5).to(dtype)

    def arguments(self, device: str = "cpu", dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        values = [self.x, self.gate_up, self.down, self.ids, self.weights]
        return [
            value.to(device, dtype if dtype is not None and value.is_floating_point() else value.dtype)
            for value in values
        ]

    def keywords(self, device: str = "cpu", dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
        return {name: value.to(device, dtype or value.dtype) for name, value in self.options.items()}


# tokens, hidden, inner, experts, k
SHAPES = [
    (1, 64, 32, 8, 2),
    (1, 1030, 130, 4, 3),
    (3, 7, 5, 4, 2),
    (16, 96, 48, 8, 4),
    (40, 33, 17, 2, 1),
    (90, 64, 24, 3, 2),
    (2, 1, 1, 3, 3),
    (0, 16, 8, 4, 2),
    (2, 8, 4, 3, 0),
    (5, 66, 300, 1, 1),
]


def check_accuracy(
    shape: tuple[int, int, int, int, int],
    dtype: torch.dtype,
    activation: str = "silu",
    shared: int = 0,
    scaled: bool = False,
) -> None:
    """Several draws together: the largest error of a few numbers says little."""
    draws = min(20, 1 + 4000 // (1 + shape[0] * shape[1]))
    on_musa, on_cpu, exact = [], [], []
    for seed in range(draws):
        inputs = Inputs(*shape, dtype, shared=shared, extra=1, seed=seed)
        if scaled:
            inputs.options["shared_scale"] = torch.rand(shape[0], 1, generator=torch.Generator().manual_seed(seed)).to(
                dtype
            )
        fused_moe = torch.ops.musa.fused_moe
        out, counts = fused_moe(*inputs.arguments("musa"), activation=activation, **inputs.keywords("musa"))
        expected = torch.bincount(inputs.ids.flatten(), minlength=shape[3] + 1)[: shape[3]]
        assert torch.equal(counts.cpu(), expected)
        on_musa.append(out.cpu())
        on_cpu.append(fused_moe(*inputs.arguments(), activation=activation, **inputs.keywords())[0])
        wide = inputs.keywords(dtype=torch.float64)
        exact.append(plain_moe(*inputs.arguments(dtype=torch.float64), activation, **wide))
    # On the CPU it is PyTorch's operators, expert by expert, as in models.
    all_on_cpu, all_exact = torch.cat(on_cpu), torch.cat(exact)
    assert_as_accurate(torch.cat(on_musa), all_on_cpu, all_exact)
    if all_exact.numel() > 0:
        allowed = 16 * torch.finfo(dtype).eps * float(all_exact.abs().max())
        torch.testing.assert_close(all_on_cpu.double(), all_exact, rtol=0, atol=allowed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_as_accurate_as_pytorchs(shape: tuple[int, int, int, int, int], dtype: torch.dtype) -> None:
    check_accuracy(shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("scaled", [False, True])
def test_activations_and_shared_experts(activation: str, scaled: bool, dtype: torch.dtype) -> None:
    check_accuracy((9, 40, 24, 5, 2), dtype, activation, 36, scaled)


@pytest.mark.parametrize("values", [[-30.0, -9.0, -3.0, -1e-3, -1e-30, 0.0, 1e-20, 1e-4, 0.5, 2.0, 8.0, 60.0]])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_over_their_whole_range(activation: str, values: list[float]) -> None:
    gates = torch.tensor(values)
    # An expert whose gate and up are the numbers themselves: x is 1, down picks each of them.
    gate_up = torch.cat([gates, torch.full_like(gates, 1.5)]).reshape(1, -1, 1)
    n = len(values)
    out, _ = torch.ops.musa.fused_moe(
        torch.ones(1, 1, device="musa"),
        gate_up.to("musa"),
        torch.ones(1, 1, n, device="musa"),
        torch.zeros(1, 1, dtype=torch.long, device="musa"),
        torch.ones(1, 1, device="musa"),
        activation=activation,
    )
    assert out.isfinite().all()
    for i in range(n):  # one by one, so that no small value is lost beside a large one
        one, _ = torch.ops.musa.fused_moe(
            torch.ones(1, 1, device="musa"),
            gate_up[:, [i, n + i]].to("musa"),
            torch.ones(1, 1, 1, device="musa"),
            torch.zeros(1, 1, dtype=torch.long, device="musa"),
            torch.ones(1, 1, device="musa"),
            activation=activation,
        )
        exact = gated(gate_up[0, [i, n + i], 0].double(), activation)
        torch.testing.assert_close(one.cpu().double().reshape(1), exact, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_does_not_depend_on_the_others_or_on_threads(dtype: torch.dtype) -> None:
    inputs = Inputs(70, 72, 40, 4, 2, dtype, shared=20)
    arguments, options = inputs.arguments("musa"), inputs.keywords("musa")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one, _ = torch.ops.musa.fused_moe(*arguments, **options)
        torch.set_num_threads(2)
        two, _ = torch.ops.musa.fused_moe(*arguments, **options)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, two)
    x, gate_up, down, ids, weights = arguments
    for rows in (slice(5, 6), slice(11, 20), slice(0, 69)):
        part, _ = torch.ops.musa.fused_moe(x[rows], gate_up, down, ids[rows], weights[rows], **options)
        assert torch.equal(part, one[rows])


def test_nan_stays_in_its_token() -> None:
    inputs = Inputs(6, 32, 16, 2, 1, torch.bfloat16)
    clean, _ = torch.ops.musa.fused_moe(*inputs.arguments("musa"))
    inputs.x[2, 3] = torch.nan
    inputs.x[4, 1] = torch.inf
    out, _ = torch.ops.musa.fused_moe(*inputs.arguments("musa"))
    assert out[2].isnan().all()
    assert torch.equal(out[[0, 1, 3, 5]], clean[[0, 1, 3, 5]])


def test_unchosen_experts_are_not_read_into_the_result() -> None:
    inputs = Inputs(4, 32, 16, 4, 2, torch.float32)
    inputs.ids.clamp_(max=2)
    inputs.gate_up[3] = torch.nan
    out, counts = torch.ops.musa.fused_moe(*inputs.arguments("musa"))
    assert out.isfinite().all()
    assert counts[3] == 0


def test_ids_of_other_ranks_are_left_out() -> None:
    inputs = Inputs(4, 32, 16, 4, 2, torch.float32)
    for other in (4, -1, 1 << 30):
        inputs.ids[:, 1] = other
        out, counts = torch.ops.musa.fused_moe(*inputs.arguments("musa"))
        x, gate_up, down, ids, weights = inputs.arguments("musa")
        alone, _ = torch.ops.musa.fused_moe(x, gate_up, down, ids[:, :1], weights[:, :1])
        assert torch.equal(out, alone)
        assert counts.sum() == 4


def test_narrow_ids_16_bit_weights_and_strided_operands() -> None:
    inputs = Inputs(5, 32, 16, 4, 2, torch.bfloat16)
    x, gate_up, down, ids, weights = inputs.arguments("musa")
    weights = weights.bfloat16()
    expected, _ = torch.ops.musa.fused_moe(x, gate_up, down, ids, weights)
    spread = torch.empty(5, 2, 32, dtype=x.dtype, device="musa")
    spread[:, 0] = x
    flipped = down.transpose(1, 2).contiguous().transpose(1, 2)
    got, _ = torch.ops.musa.fused_moe(spread[:, 0], gate_up, flipped, ids.int(), weights)
    assert torch.equal(got, expected)
    offset = torch.empty(gate_up.numel() + 1, dtype=x.dtype, device="musa")[1:].view_as(gate_up).copy_(gate_up)
    assert torch.equal(torch.ops.musa.fused_moe(x, offset, down, ids, weights)[0], expected)


def test_float64_takes_the_reference() -> None:
    inputs = Inputs(5, 32, 16, 4, 2, torch.float64, shared=8)
    out, _ = torch.ops.musa.fused_moe(*inputs.arguments("musa"), **inputs.keywords("musa"))
    torch.testing.assert_close(out.cpu(), plain_moe(*inputs.arguments(dtype=torch.float64), **inputs.keywords()))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(activation: str) -> None:
    inputs = Inputs(3, 4, 3, 3, 2, torch.float64, shared=2, extra=1, seed=4)
    ids = inputs.ids
    leaves = [inputs.x, inputs.gate_up, inputs.down, inputs.weights.double(), *inputs.options.values()]
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]

    def block(*tensors: torch.Tensor) -> torch.Tensor:
        x, gate_up, down, weights, shared_gate_up, shared_down = tensors
        return torch.ops.musa.fused_moe(
            x,
            gate_up,
            down,
            ids.to(x.device),
            weights,
            activation=activation,
            shared_gate_up=shared_gate_up,
            shared_down=shared_down,
        )[0]

    assert torch.autograd.gradcheck(block, leaves)
    expected = torch.autograd.grad(block(*leaves).sum(), leaves)
    on_musa = [leaf.detach().float().to("musa").requires_grad_() for leaf in leaves]
    for got, exact in zip(torch.autograd.grad(block(*on_musa).sum(), on_musa), expected, strict=True):
        torch.testing.assert_close(got.cpu().double(), exact, rtol=1e-4, atol=1e-5)


def replaced(arguments: list[torch.Tensor], which: int, value: torch.Tensor) -> list[torch.Tensor]:
    return [*arguments[:which], value.to(arguments[0].device), *arguments[which + 1 :]]


@pytest.mark.parametrize("device", ["musa", "cpu", "meta"])
def test_what_is_refused(device: str) -> None:
    arguments = Inputs(4, 8, 6, 3, 2, torch.float32).arguments(device)
    fused_moe = torch.ops.musa.fused_moe
    cases = [
        (replaced(arguments, 1, torch.ones(3, 12, 7)), {}, r"gate_up \[E, 2 \* I, H\]"),
        (replaced(arguments, 2, torch.ones(3, 8, 7)), {}, r"down \[E, H, I\]; got .*\[3, 8, 7\]"),
        (replaced(arguments, 3, torch.ones(4, 3, dtype=torch.long)), {}, r"ids and weights of shape \[T, k\]"),
        (replaced(arguments, 3, torch.ones(4, 2)), {}, "int32 or int64 ids"),
        (replaced(arguments, 1, torch.ones(3, 12, 8).half()), {}, "in one floating point dtype"),
        (arguments, {"activation": "relu"}, "got 'relu'"),
        (arguments, {"shared_down": torch.ones(8, 2, device=device)}, "both shared_gate_up and shared_down"),
    ]
    for values, options, text in cases:
        with pytest.raises((RuntimeError, ValueError), match=text):
            fused_moe(*values, **options)


def test_shapes_on_meta() -> None:
    out, counts = torch.ops.musa.fused_moe(*Inputs(4, 8, 6, 3, 2, torch.bfloat16).arguments("meta"))
    assert (out.shape, out.dtype, counts.shape, counts.dtype) == ((4, 8), torch.bfloat16, (3,), torch.int64)


def test_counts_as_native_and_is_captured_by_graphs() -> None:
    inputs = Inputs(2, 32, 16, 4, 2, torch.bfloat16)
    arguments = inputs.arguments("musa")
    torch.musa.reset_op_statistics()
    torch.ops.musa.fused_moe(*arguments)
    (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::fused_moe"]
    assert (entry.calls, entry.native_calls) == (1, 1)
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        out, counts = torch.ops.musa.fused_moe(*arguments)
    arguments[0].copy_(torch.randn(2, 32))
    arguments[3].copy_(torch.tensor([[3, 2], [3, 1]]))
    graph.replay()
    assert torch.equal(out, torch.ops.musa.fused_moe(*arguments)[0])
    assert counts.tolist() == [0, 1, 1, 2]
