"""A forward pass of a small DeepSeek-V3 (latent attention, grouped expert choice) with random weights."""

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

torch.manual_seed(0)
config = DeepseekV3Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    moe_intermediate_size=16,
    num_hidden_layers=2,
    first_k_dense_replace=1,
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=16,
    kv_lora_rank=16,
    qk_nope_head_dim=8,
    qk_rope_head_dim=8,
    v_head_dim=8,
    n_routed_experts=8,
    n_group=2,
    topk_group=1,
    num_experts_per_tok=2,
    n_shared_experts=1,
)
model = DeepseekV3ForCausalLM(config).to("musa", torch.bfloat16).eval()
tokens = torch.arange(2, 18, device="musa").view(2, 8)
with torch.no_grad():
    logits = model(tokens).logits
assert logits.shape == (2, 8, 64)
assert torch.isfinite(logits).all()
