"""A random Qwen3-MoE model, and the way an engine computes it with the fused operators of `torch.ops.musa`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

Weights = dict[str, torch.Tensor]
ops = torch.ops.musa


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 32000
    hidden: int = 1024
    layers: int = 4
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 64
    experts: int = 64
    chosen: int = 8
    expert_width: int = 512
    rope_base: float = 1e6
    eps: float = 1e-6


def random_weights(shape: Shape, seed: int = 0) -> Weights:
    """Named as llama.cpp names them, without `.weight`; norms are float32, all else is bfloat16.

    The router's weights are large enough that few choices hang on the rounding of a score."""
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {}

    def normal(name: str, *size: int, deviation: float = 0.02) -> None:
        tensor = torch.empty(size, dtype=torch.bfloat16)
        weights[name] = tensor.normal_(0, deviation, generator=generator)

    def norm(name: str, size: int) -> None:
        weights[name] = 1 + 0.1 * torch.randn(size, generator=generator)

    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    normal("token_embd", shape.vocabulary, shape.hidden)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm", shape.hidden)
        normal(block + "attn_q", queries, shape.hidden)
        normal(block + "attn_k", keys, shape.hidden)
        normal(block + "attn_v", keys, shape.hidden)
        norm(block + "attn_q_norm", shape.head_dim)
        norm(block + "attn_k_norm", shape.head_dim)
        normal(block + "attn_output", shape.hidden, queries)
        norm(block + "ffn_norm", shape.hidden)
        normal(block + "ffn_gate_inp", shape.experts, shape.hidden, deviation=0.1)
        normal(block + "ffn_gate_exps", shape.experts, shape.expert_width, shape.hidden)
        normal(block + "ffn_up_exps", shape.experts, shape.expert_width, shape.hidden)
        normal(block + "ffn_down_exps", shape.experts, shape.hidden, shape.expert_width)
    norm("output_norm", shape.hidden)
    normal("output", shape.vocabulary, shape.hidden)
    return weights


@dataclass(frozen=True)
class Layer:
    attn_norm: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    output: torch.Tensor
    ffn_norm: torch.Tensor
    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # the cache, [positions, kv heads, head dim]
    values: torch.Tensor


Attend = Callable[[Layer, torch.Tensor], torch.Tensor]


class FusedModel:
    """One sequence of up to `context` tokens on one card. A decoding step is a graph, captured once: it finds its token
    and position in memory and leaves there those of the next step."""

    def __init__(self, shape: Shape, weights: Weights, context: int, device: str = "musa") -> None:
        self.shape = shape
        self.device = device
        self.context = context

        def layer(index: int) -> Layer:
            def part(*names: str, dim: int = 0) -> torch.Tensor:
                return torch.cat([weights[f"blk.{index}.{name}"] for name in names], dim).to(device)

            def cache() -> torch.Tensor:
                return torch.zeros(context, shape.kv_heads, shape.head_dim, dtype=torch.bfloat16, device=device)

            return Layer(
                attn_norm=part("attn_norm"),
                qkv=part("attn_q", "attn_k", "attn_v"),
                q_norm=part("attn_q_norm"),
                k_norm=part("attn_k_norm"),
                output=part("attn_output"),
                ffn_norm=part("ffn_norm"),
                router=part("ffn_gate_inp"),
                gate_up=part("ffn_gate_exps", "ffn_up_exps", dim=1),
                down=part("ffn_down_exps"),
                keys=cache(),
                values=cache(),
            )

        self.layers = [layer(index) for index in range(shape.layers)]
        self.embedding, self.norm, self.head = (
            weights[name].to(device) for name in ("token_embd", "output_norm", "output")
        )
        frequencies = shape.rope_base ** -(torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
        self.cos, self.sin = angles.cos().float().to(device), angles.sin().float().to(device)
        self.positions = torch.arange(context, device=device)
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        # The keys so far, and the rest of the cache, which no query looks at.
        self.key_starts = torch.tensor([0, 1, context], dtype=torch.int32, device=device)
        self.query_starts = torch.tensor([0, 1, 1], dtype=torch.int32, device=device)
        self.one_key = torch.tensor([0, 1, 0], dtype=torch.int32, device=device)
        self.step()
        self.graph = torch.musa.MUSAGraph()
        with torch.musa.graph(self.graph):
            self.step()

    def compute(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """tokens [n] at positions [n]; logits [1, vocabulary] behind the last of them."""
        shape = self.shape
        residual = functional.embedding(tokens, self.embedding)
        normed = ops.rms_norm(residual, self.layers[0].attn_norm, shape.eps)
        for layer, following in zip(self.layers, [*self.layers[1:], None], strict=True):
            q, k, v = ops.qkv_norm_rope(
                functional.linear(normed, layer.qkv), shape.heads, shape.kv_heads, self.cos, self.sin,
                positions=positions, q_weight=layer.q_norm, k_weight=layer.k_norm, eps=shape.eps,
                rotary_dim=shape.head_dim,
            )  # fmt: skip
            layer.keys.index_copy_(0, positions, k)
            layer.values.index_copy_(0, positions, v)
            x = functional.linear(attend(layer, q), layer.output)
            ops.add_rms_norm_(x, residual, layer.ffn_norm, shape.eps)
            shares, ids = ops.route_experts(functional.linear(x, layer.router), shape.chosen, renormalize=True)
            normed, _ = ops.fused_moe(x, layer.gate_up, layer.down, ids, shares)
            if following is None:
                normed, residual = normed[-1:], residual[-1:]
            weight = self.norm if following is None else following.attn_norm
            ops.add_rms_norm_(normed, residual, weight, shape.eps)
        return functional.linear(normed, self.head)

    def logits(self, tokens: Sequence[int], start: int) -> torch.Tensor:
        """Of the position behind `tokens`, which stand at start ..; [vocabulary]."""
        end = start + len(tokens)

        def attend(layer: Layer, q: torch.Tensor) -> torch.Tensor:
            query, key, value = (x.transpose(0, 1).unsqueeze(0) for x in (q, layer.keys[:end], layer.values[:end]))
            out, _ = ops.attention(query, key, value, right=0)
            return out.transpose(1, 2).reshape(len(tokens), -1)

        return self.compute(torch.tensor(tokens, device=self.device), self.positions[start:end], attend)[0]

    def step(self) -> None:
        def attend(layer: Layer, q: torch.Tensor) -> torch.Tensor:
            starts = self.query_starts, self.key_starts
            out, _ = ops.attention_varlen(q, layer.keys, layer.values, *starts, 1, self.context, right=0)
            return out.view(1, -1)

        self.token.copy_(ops.sample(self.compute(self.token, self.position, attend)))
        self.position.add_(1)
        self.key_starts.add_(self.one_key)

    def decode(self, first: int, start: int, count: int) -> list[int]:
        """The tokens that greedy decoding appends behind token `first` at position `start`."""
        self.token.fill_(first)
        self.position.fill_(start)
        self.key_starts[1] = start + 1
        chosen = []
        for _ in range(count):
            self.graph.replay()
            chosen.append(int(self.token))
        return chosen
