"""Mixtures of experts: the choice of experts and their work."""

from collections.abc import Iterator

import torch

from kernel_rows.row import Case, Goal, Row, on, rand, rotating

EXPERTS, TOP_K, HIDDEN, INNER = 64, 8, 1024, 512


def routing(tokens: int, experts: int, top_k: int) -> Case:
    logits = rand(tokens, experts, dtype=torch.float32)
    (device,) = on("musa", logits)
    return Case(
        musa=lambda: torch.ops.musa.route_experts(device, top_k),
        rivals={"torch": lambda: logits.softmax(-1).topk(top_k)},
        bytes=logits.nbytes,
    )


def eager(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """One expert after the other, with the operators that stock model code uses without a fused kernel."""
    out = torch.zeros_like(x)
    mask = torch.nn.functional.one_hot(ids, num_classes=gate_up.size(0) + 1).permute(2, 1, 0)
    for (expert,) in mask.sum(dim=(-1, -2)).gt(0).nonzero():
        place, token = torch.where(mask[expert])
        gate, up = torch.nn.functional.linear(x[token], gate_up[expert]).chunk(2, dim=-1)
        product = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, down[expert])
        out.index_add_(0, token, (product * weights[token, place, None]).to(out.dtype))
    return out


def block(tokens: int) -> Case:
    # 192 MB of weights; few tokens choose other experts in each of the turns, so that these come from memory.
    gate_up = rand(EXPERTS, 2 * INNER, HIDDEN) / 32
    down = rand(EXPERTS, HIDDEN, INNER, seed=1) / 32
    x = rand(tokens, HIDDEN, seed=2)
    turns = []
    for turn in range(7 if tokens == 1 else 2):
        logits = torch.randn(tokens, EXPERTS, generator=torch.Generator().manual_seed(turn))
        if tokens == 1:
            logits = torch.zeros(1, EXPERTS)
            logits[:, TOP_K * turn : TOP_K * (turn + 1)] = 1
        weights, ids = logits.softmax(-1).topk(TOP_K)
        turns.append((x, gate_up, down, ids, (weights / weights.sum(-1, keepdim=True)).bfloat16()))
    met = sum(ids.unique().numel() for *_, ids, _ in turns) / len(turns)
    first = on("musa", *turns[0])
    on_musa = [first, *((*first[:3], *on("musa", *turn[3:])) for turn in turns[1:])]
    return Case(
        musa=rotating(torch.ops.musa.fused_moe, on_musa),
        rivals={"HF eager": rotating(eager, turns)},
        bytes=met * 3 * HIDDEN * INNER * 2,
        flops=2 * 3 * HIDDEN * INNER * tokens * TOP_K,
        calls=7 if tokens == 1 else 1,
    )


def grouped(tokens: int) -> Case:
    """The experts' first product, as models call it with the weight of nn.Linear layout."""
    weight = rand(EXPERTS, 2 * INNER, HIDDEN)
    scores = torch.randn(tokens, EXPERTS, generator=torch.Generator().manual_seed(tokens))
    offsets = scores.topk(TOP_K).indices.flatten().bincount(minlength=EXPERTS).cumsum(0).int()
    x = rand(tokens * TOP_K, HIDDEN, seed=1)
    device, on_card, ends = on("musa", x, weight, offsets)
    function = torch.nn.functional.grouped_mm
    return Case(
        musa=lambda: function(device, on_card.mT, offs=ends),
        rivals={"torch": lambda: function(x, weight.mT, offs=offsets)},
        flops=2 * tokens * TOP_K * HIDDEN * 2 * INNER,
    )


def rows() -> Iterator[Row]:
    yield Row("routing 4096x256 top-8", (Goal(5, "torch"),), lambda: routing(4096, 256, 8))
    yield Row("MoE block bf16 T=1", (Goal(0.85, "B"), Goal(4.5, "HF eager")), lambda: block(1))
    yield Row("MoE block bf16 T=16", (Goal(2.5, "HF eager"),), lambda: block(16))
    yield Row("MoE block bf16 T=512", (Goal(0.70, "F"),), lambda: block(512))
    for tokens in (1, 16, 64, 512):
        yield Row(f"grouped_mm bf16 T={tokens}", (Goal(1, "torch"),), lambda t=tokens: grouped(t))
