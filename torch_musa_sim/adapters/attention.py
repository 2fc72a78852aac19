"""transformers' attention on musa: attn_implementation="musa".

transformers keeps registries of ways to compute attention and of ways to write down its masks. `sdpa`, most models'
default, reaches the device's kernels as it is. It has no sinks and no soft-cap, so models with these (gpt-oss, Gemma 2)
compute eagerly, and it takes a sliding window as a dense mask. Both registries get one more entry: sinks, soft-cap and
windows go to torch.ops.musa.attention, without a mask where the window says it all, and the rest is that of `sdpa`.
"""

import math
from types import ModuleType
from typing import Any

import torch

NAME = "musa"


def install(modeling: ModuleType, masking: ModuleType) -> None:
    """Teaches transformers.modeling_utils and masking_utils, once; versions without registries stay as they are."""
    attentions = getattr(modeling, "AttentionInterface", None)
    masks = getattr(masking, "AttentionMaskInterface", None)
    known = [getattr(registry, "_global_mapping", {}) for registry in (attentions, masks)]
    if any("sdpa" not in entries or NAME in entries for entries in known):
        return
    if attentions is None or masks is None or not (hasattr(attentions, "register") and hasattr(masks, "register")):
        return
    attentions.register(NAME, _Attention(known[0]["sdpa"]))
    masks.register(NAME, _Mask(known[1]["sdpa"]))


class _Mask:
    """A mask of truth values, or none where attention at the last keys, with the layer's window, means the same."""

    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __call__(self, *arguments: Any, **keywords: Any) -> torch.Tensor | None:
        if not arguments and self._is_plain(**keywords):
            return None
        # Causality is always written down then: no mask means the above.
        return self._stock(*arguments, **{**keywords, "allow_is_causal_skip": False})  # type: ignore[no-any-return]

    @staticmethod
    def _is_plain(
        *,
        q_length: int,
        kv_length: int,
        q_offset: Any = 0,
        kv_offset: Any = 0,
        attention_mask: torch.Tensor | None = None,
        local_size: int | None = None,
        allow_is_causal_skip: bool = True,
        config: Any = None,
        **_: Any,
    ) -> bool:
        if not allow_is_causal_skip:
            return False
        if not all(isinstance(number, int) for number in (q_length, kv_length, q_offset, kv_offset)):
            return False  # a static cache counts on the device
        if q_offset + q_length != kv_offset + kv_length:
            return False
        chunk = getattr(config, "attention_chunk_size", None)
        if local_size is not None and (local_size != getattr(config, "sliding_window", None) or local_size == chunk):
            return False  # chunks, not a window
        if attention_mask is None:
            return True
        if torch.compiler.is_compiling() or attention_mask.dim() != 2 or attention_mask.shape[-1] < kv_length:
            return False
        return bool(attention_mask[:, -kv_length:].all())


class _Attention:
    def __init__(self, stock: Any) -> None:
        self._stock = stock

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        softcap: float | None = None,
        sliding_window: int | None = None,
        s_aux: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        **keywords: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """query `[batch, heads, queries, dim]`, key and value `[batch, kv heads, keys, ..]`, attention_mask expandable
        to `[batch, heads, queries, keys]`; returns `[batch, queries, heads, value dim]` and no weights.

        Raises ValueError for dropout together with sinks, a soft-cap or a window.
        """
        queries, keys = query.shape[2], key.shape[2]
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        plain = attention_mask is None and causal
        window = sliding_window if plain and sliding_window is not None and sliding_window < keys else None
        # sdpa puts the first query at the first key.
        shifted = plain and queries > 1 and queries != keys
        has_extras = bool(softcap) or s_aux is not None or window is not None
        if not (has_extras or shifted):
            return self._stock(  # type: ignore[no-any-return]
                module,
                query,
                key,
                value,
                attention_mask,
                dropout=dropout,
                scaling=scaling,
                is_causal=causal,
                position_bias=position_bias,
                **keywords,
            )
        if dropout or position_bias is not None:
            raise ValueError(
                f'attn_implementation="{NAME}" has no dropout (got {dropout}) and no position bias with sinks, a '
                'soft-cap or a window; set attention_dropout=0 in the config, or use attn_implementation="eager"'
            )
        out, _ = torch.ops.musa.attention(
            query,
            key,
            value,
            scale=scaling if scaling is not None else 1 / math.sqrt(query.shape[-1]),
            left=-1 if window is None else window - 1,
            right=0 if plain else -1,
            softcap=softcap or 0.0,
            sinks=s_aux,
            mask=attention_mask,
        )
        return out.transpose(1, 2).contiguous(), None
