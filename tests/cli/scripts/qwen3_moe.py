"""A prefill and three decode steps of a small Qwen3-MoE with random weights."""

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

torch.manual_seed(0)
config = Qwen3MoeConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    moe_intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
)
model = Qwen3MoeForCausalLM(config).to("musa", torch.bfloat16).eval()
prompt = torch.arange(2, 10, device="musa")[None]
with torch.no_grad():
    out = model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
assert out.shape == (1, 12)
