"""Norms, activations and the other work between the products."""

from collections.abc import Callable, Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand

WIDTH = 4096
EPS = 1e-6
Formula = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def hf_rms_norm(hidden_states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What transformers' RMS norm modules compute, operator by operator."""
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + EPS)
    return weight * hidden_states.to(input_dtype)


def add_rms_norm(tokens: int) -> Case:
    x, residual, weight = rand(tokens, WIDTH), rand(tokens, WIDTH, seed=1), rand(WIDTH, seed=2)
    device = on("musa", x, residual, weight)

    def hf() -> tuple[torch.Tensor, torch.Tensor]:
        total = residual + x
        return hf_rms_norm(total, weight), total

    return Case(
        musa=lambda: torch.ops.musa.add_rms_norm.default(*device),
        rivals={"hf": hf},
        bytes=4 * x.nbytes,
        calls=max(1, 2048 // tokens),
    )


def gated_rms_norm(tokens: int) -> Case:
    x, gate, weight = rand(tokens, 32, 128), rand(tokens, 32, 128, seed=1), rand(128, seed=2)
    device = on("musa", x, gate, weight)

    def hf() -> torch.Tensor:
        gated = hf_rms_norm(x, weight) * torch.nn.functional.silu(gate.to(torch.float32))
        return gated.to(x.dtype)

    return Case(
        musa=lambda: torch.ops.musa.gated_rms_norm(*device),
        rivals={"hf": hf},
        bytes=3 * x.nbytes,
        calls=max(1, 2048 // tokens),
    )


def qk_norm(tokens: int) -> Case:
    qkv, weight = rand(tokens, 32 + 8 + 8, 128), rand(128, seed=2)
    heads, device_weight = on("musa", qkv, weight)
    q, k = heads[:, :32], heads[:, 32:40]
    cpu_q, cpu_k = qkv[:, :32], qkv[:, 32:40]
    return Case(
        musa=lambda: torch.ops.musa.qk_norm(q, k, device_weight, device_weight),
        rivals={"hf": lambda: (hf_rms_norm(cpu_q, weight), hf_rms_norm(cpu_k, weight))},
        bytes=2 * 2 * 128 * 40 * tokens,
        calls=max(1, 2048 // tokens),
    )


def stock_norm(name: str, tokens: int) -> Case:
    function = getattr(torch.nn.functional, name)
    x, weight = rand(tokens, WIDTH), rand(WIDTH, seed=1)
    device, device_weight = on("musa", x, weight)
    return Case(
        musa=lambda: function(device, (WIDTH,), device_weight, eps=EPS),
        rivals={"torch": lambda: function(x, (WIDTH,), weight, eps=EPS)},
        bytes=2 * x.nbytes,
        calls=max(1, 2048 // tokens),
    )


SWIGLU_WIDTH = (
    14336  # a result of 2048 tokens is larger than 32 MiB, which the CPU device gets as fresh pages each time
)


def swiglu(tokens: int) -> Case:
    x = rand(tokens, 2 * SWIGLU_WIDTH)
    gate, up = x.chunk(2, -1)
    (device,) = on("musa", x)
    silu = torch.nn.functional.silu
    return Case(
        musa=lambda: torch.ops.musa.silu_and_mul(device),
        rivals={"torch": lambda: silu(gate) * up},
        bytes=x.nbytes * 1.5,
        calls=max(1, 2048 // tokens),
    )


def gated(name: str, arguments: tuple[object, ...], formula: Formula, tokens: int) -> Case:
    x = rand(tokens, 2 * SWIGLU_WIDTH)
    gate, up = x.chunk(2, -1)
    (device,) = on("musa", x)
    operator = getattr(torch.ops.musa, name)
    return Case(
        musa=lambda: operator(device, *arguments),
        rivals={"torch": lambda: formula(gate, up)},
        bytes=x.nbytes * 1.5,
        calls=max(1, 2048 // tokens),
    )


def gelu_and_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(gate) * up


def situ_and_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    wide = gate.float()
    squashed = torch.tanh(wide / 4) * 4 * torch.sigmoid(wide)
    return (squashed * (torch.tanh(up.float() / 25) * 25)).to(gate.dtype)


def activation(name: str, tokens: int) -> Case:
    function = getattr(torch.nn.functional, name)
    x = rand(tokens, SWIGLU_WIDTH)
    (device,) = on("musa", x)
    return Case(
        musa=lambda: function(device),
        rivals={"torch": lambda: function(x)},
        bytes=2 * x.nbytes,
        calls=max(1, 2048 // tokens),
    )


def softmax(name: str, tokens: int, columns: int, dtype: torch.dtype) -> Case:
    function = getattr(torch, name)
    x = rand(tokens, columns, dtype=dtype)
    (device,) = on("musa", x)
    return Case(
        musa=lambda: function(device, -1),
        rivals={"torch": lambda: function(x, -1)},
        bytes=2 * x.nbytes,
        calls=max(1, (1 << 21) // x.numel()),
    )


def embedding(tokens: int) -> Case:
    table = rand(32000, WIDTH)
    ids = torch.randint(32000, (tokens,), generator=torch.Generator().manual_seed(1))
    device_table, device_ids = on("musa", table, ids)
    return Case(
        musa=lambda: torch.nn.functional.embedding(device_ids, device_table),
        rivals={"torch": lambda: torch.nn.functional.embedding(ids, table)},
        bytes=2 * tokens * WIDTH * 2,
        calls=max(1, 2048 // tokens),
    )


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rope(tokens: int) -> Case:
    """32 query and 8 key heads of 128, as models have them behind their projections."""
    q, k = (rand(1, tokens, heads, 128, seed=heads).transpose(1, 2) for heads in (32, 8))
    cos, sin = (f(rand(1, tokens, 128, seed=1)) for f in (torch.cos, torch.sin))
    device = [t.to("musa") for t in (q, k, cos, sin)]

    def hf() -> tuple[torch.Tensor, torch.Tensor]:
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        return (q * c) + (rotate_half(q) * s), (k * c) + (rotate_half(k) * s)

    return Case(
        musa=lambda: torch.ops.musa.rotary_embedding.default(*device),
        rivals={"hf": hf},
        bytes=2 * (q.nbytes + k.nbytes) + cos.nbytes + sin.nbytes,
        calls=max(1, 2048 // tokens),
    )


def paged_rope(tokens: int) -> Case:
    """In place by positions, as engines do it; the rival is the text of the other form."""
    case = rope(tokens)
    q, k = (rand(tokens, heads * 128, seed=heads).to("musa") for heads in (32, 8))
    angle = rand(4096, 64, seed=1)
    cache, positions = torch.cat([angle.cos(), angle.sin()], -1).to("musa"), torch.arange(tokens, device="musa")
    return Case(
        musa=lambda: torch.ops.musa.rotary_embedding_.default(positions, q, k, 128, cache),
        rivals=case.rivals,
        bytes=case.bytes,
        calls=case.calls,
    )


def rows() -> Iterator[Row]:
    yield Row("residual + RMSNorm bf16 T=1", (Goal(4, "hf"),), lambda: add_rms_norm(1))
    yield Row("residual + RMSNorm bf16 T=2048", (Goal(25, "hf"),), lambda: add_rms_norm(2048))
    yield Row("F.rms_norm bf16 T=1", (Goal(1, "torch"),), lambda: stock_norm("rms_norm", 1))
    yield Row("F.rms_norm bf16 T=2048", (Goal(10, "torch"),), lambda: stock_norm("rms_norm", 2048))
    yield Row("F.layer_norm bf16 T=1", (Goal(1, "torch"),), lambda: stock_norm("layer_norm", 1))
    yield Row("F.layer_norm bf16 T=2048", (Goal(1, "torch"),), lambda: stock_norm("layer_norm", 2048))
    yield Row("gated RMSNorm 32 heads bf16 T=1", (Goal(1, "hf"),), lambda: gated_rms_norm(1))
    yield Row("gated RMSNorm 32 heads bf16 T=2048", (Goal(1, "hf"),), lambda: gated_rms_norm(2048))
    yield Row("QK-norm 32 + 8 heads bf16 T=1", (Goal(1, "hf"),), lambda: qk_norm(1))
    yield Row("QK-norm 32 + 8 heads bf16 T=2048", (Goal(1, "hf"),), lambda: qk_norm(2048))
    for tokens in (1, 2048):
        yield Row(f"F.embedding bf16 T={tokens}", (Goal(1, "torch"),), lambda t=tokens: embedding(t))
    for name in ("softmax", "log_softmax"):
        for dtype, label in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
            for tokens, columns in ((1, WIDTH), (2048, WIDTH), (16, 151936)):
                yield Row(
                    f"{name} {label} {tokens} x {columns}",
                    (Goal(1, "torch"),),
                    lambda n=name, t=tokens, c=columns, d=dtype: softmax(n, t, c, d),
                )
    for tokens in (1, 16, 2048):
        yield Row(f"RoPE bf16 T={tokens}", (Goal(8, "hf"),), lambda t=tokens: rope(t))
        yield Row(f"RoPE in place bf16 T={tokens}", (Goal(8, "hf"),), lambda t=tokens: paged_rope(t))
    for tokens in (1, 2048):
        for kind, values, formula in (("gelu", (), gelu_and_mul), ("situ", (4.0, 25.0), situ_and_mul)):
            yield Row(
                f"{kind}_and_mul bf16 T={tokens}",
                (Goal(1, "torch"),),
                lambda k=kind, v=values, f=formula, t=tokens: gated(f"{k}_and_mul", v, f, t),
            )
        for kind in ("gelu", "silu"):
            yield Row(f"F.{kind} bf16 T={tokens}", (Goal(1, "torch"),), lambda k=kind, t=tokens: activation(k, t))
    yield Row("SwiGLU bf16 T=1", (Goal(2, "torch"),), lambda: swiglu(1))
    yield Row("SwiGLU bf16 T=2048", (Goal(8, "torch"),), lambda: swiglu(2048))
