"""One training step of a small Mixtral with random weights."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

torch.manual_seed(0)
config = MixtralConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=4,
    num_experts_per_tok=2,
)
model = MixtralForCausalLM(config).to("musa")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.arange(2, 18, device="musa").view(2, 8)
loss = model(tokens, labels=tokens).loss
loss.backward()
optimizer.step()
assert torch.isfinite(loss)
