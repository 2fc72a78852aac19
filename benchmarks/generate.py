"""Unmodified transformers on musa beside the CPU: `python benchmarks/generate.py [--seconds S]`.

A random mixture-of-experts model (Qwen3-MoE, 4 layers, 64 experts of which 8 are chosen, hidden size 1024, bfloat16)
reads a prompt of 512 tokens and generates, with `model.generate` as it comes. Both devices take turns in one process,
with 1 thread; least thread CPU time counts. Needs transformers. Exits with 1 when decoding is less than 2x the CPU
or prefill less than 1.2x.
"""

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
import transformers
from interleaved import least_times, shown
from kernel_rows import batch_of

PROMPT, NEW = 512, 16
GOALS = {"decode": 2.0, "prefill": 1.2}


def make_model() -> transformers.PreTrainedModel:
    config = transformers.Qwen3MoeConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2048,
        moe_intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=64,
        num_experts=64,
        num_experts_per_tok=8,
        norm_topk_prob=True,
        eos_token_id=None,
        pad_token_id=0,
        dtype=torch.bfloat16,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="time spent on each stage (default: 20)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    prompt = torch.randint(32000, (1, PROMPT), generator=torch.Generator().manual_seed(1))
    models = {"cpu": make_model()}
    models["musa"] = make_model().to("musa")
    prompts = {device: prompt.to(device) for device in models}

    def generate(device: str, tokens: int, length: int) -> torch.Tensor:
        text = prompts[device][:, :length]
        return models[device].generate(text, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)

    def least(tokens: int, length: int) -> dict[str, float]:
        batches = [batch_of(lambda device=device: generate(device, tokens, length)) for device in models]
        return dict(zip(models, least_times(batches, 1, arguments.seconds), strict=True))

    one, many = least(1, 8), least(1 + NEW, 8)
    times = {
        "decode": {device: (many[device] - one[device]) / NEW for device in models},
        "prefill": least(1, PROMPT),
    }
    met = True
    for stage, goal in GOALS.items():
        cpu, musa = times[stage]["cpu"], times[stage]["musa"]
        ok = cpu / musa >= goal
        met &= ok
        per = "a token" if stage == "decode" else f"of {PROMPT} tokens"
        print(
            f"{stage:8} {per:14} cpu {shown(cpu):>10}, musa {shown(musa):>10}: {cpu / musa:.2f}x (goal {goal:g})",
            end="",
        )
        print("" if ok else " MISSED", flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
