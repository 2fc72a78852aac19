"""Stock mixture-of-experts models of transformers, tiny and with random weights, and inputs for them."""

from typing import Any

import torch
import transformers

VOCABULARY = 128
IMAGE, VISION_START, VISION_END = 120, 121, 122

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # large enough for logits that differ from token to token
    "bos_token_id": 1,
    "eos_token_id": None,  # so that every answer has full length
    "pad_token_id": 0,
}
_GROUPED_QUERIES: dict[str, Any] = {"num_key_value_heads": 2, "num_experts_per_tok": 2}
_LATENT_ATTENTION: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
}

# What makes each model worth a place here stands in its comment.
_TEXT_MODELS: dict[str, dict[str, Any]] = {
    # normalised queries and keys, many small experts
    "qwen3_moe": {
        "head_dim": 8,
        "intermediate_size": 48,
        "moe_intermediate_size": 24,
        "num_experts": 8,
        **_GROUPED_QUERIES,
    },
    # few large experts
    "mixtral": {"intermediate_size": 48, "num_local_experts": 4, **_GROUPED_QUERIES},
    # latent attention, grouped routing, a shared expert, a dense first layer
    "deepseek_v3": {
        "intermediate_size": 48,
        "moe_intermediate_size": 24,
        "n_routed_experts": 8,
        "n_group": 4,
        "topk_group": 2,
        "q_lora_rank": 24,
        "first_k_dense_replace": 1,
        "num_mtp_layers": 0,
        **_LATENT_ATTENTION,
    },
    # attention sinks, a sliding window, biased and transposed experts with a clamped activation
    "gpt_oss": {
        "head_dim": 8,
        "intermediate_size": 24,
        "num_local_experts": 4,
        "sliding_window": 8,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 4.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
        **_GROUPED_QUERIES,
    },
    # partial rotary embedding, sigmoid routing with a correction bias, a dense first layer
    "glm4_moe": {
        "head_dim": 8,
        "intermediate_size": 48,
        "moe_intermediate_size": 24,
        "n_routed_experts": 8,
        "use_qk_norm": True,
        "num_mtp_layers": 0,
        **_GROUPED_QUERIES,
    },
    # routing weights that aren't normalised
    "olmoe": {"intermediate_size": 24, "num_experts": 8, **_GROUPED_QUERIES},
    # gated linear attention with short convolutions beside latent attention
    "kimi_linear": {
        "intermediate_size": 48,
        "moe_intermediate_size": 24,
        "num_local_experts": 8,
        "linear_head_dim": 8,
        "linear_num_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"],
        **_LATENT_ATTENTION,
    },
}

# images through a vision tower, whose layers also feed the first layers of the text model
_VISION_TEXT: dict[str, Any] = {
    **_COMMON,
    **_GROUPED_QUERIES,
    "head_dim": 8,
    "intermediate_size": 48,
    "moe_intermediate_size": 24,
    "num_experts": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
}
_VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 4,
    "patch_size": 4,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0, 1],
    "initializer_range": 0.2,
}

MODELS = (*_TEXT_MODELS, "qwen3_vl_moe")


def make_model(name: str, dtype: torch.dtype, experts: str | None) -> transformers.PreTrainedModel:
    """The model on the CPU in evaluation mode, the same weights at every call; `experts` None is the stock choice."""
    transformers.set_seed(0)
    chosen = {} if experts is None else {"experts_implementation": experts}
    if name == "qwen3_vl_moe":
        config = transformers.Qwen3VLMoeConfig(
            text_config=dict(_VISION_TEXT),
            vision_config=dict(_VISION),
            image_token_id=IMAGE,
            vision_start_token_id=VISION_START,
            vision_end_token_id=VISION_END,
        )
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=dtype, **chosen)
    else:
        config = transformers.AutoConfig.for_model(name, **{**_COMMON, **_TEXT_MODELS[name]})
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, **chosen)
    return model.eval()


def make_inputs(name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Two prompts of 12 tokens on the CPU, the first one padded on the left; with an image each for a vision model."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 100, (2, 12), generator=generator)
    mask = torch.ones_like(ids)
    if name == "qwen3_vl_moe":
        ids[:, 2:8] = torch.tensor([VISION_START, IMAGE, IMAGE, IMAGE, IMAGE, VISION_END])
        patches = torch.randn((2 * 16, 3 * 2 * 4 * 4), generator=generator)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "mm_token_type_ids": (ids == IMAGE).int(),
            "pixel_values": patches.to(dtype),
            "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 4]]),
        }
    ids[0, :3] = 0
    mask[0, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


def to_device(inputs: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in inputs.items()}
