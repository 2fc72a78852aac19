"""The same model on musa and in llama.cpp: `python benchmarks/vs_llama_cpp.py [--seconds S]`.

A random mixture-of-experts model (Qwen3-MoE, 4 layers, 64 experts of which 8 are chosen, hidden size 1024, bfloat16)
reads a prompt of 512 tokens and generates greedily behind it. musa runs it as an engine does, with the fused operators
of `torch.ops.musa`; llama.cpp reads it from a file that is written first. Before anything is timed it is checked that
both are the same model: their logits along a text must be close and choose the same tokens. Then they take turns in one
process, with 1 thread; least CPU time of the process counts. Exits with 1 when decoding is slower than llama.cpp's, or
prefill less than 1.5x as fast.

Needs `pip install llama-cpp-python gguf`, which compiles llama.cpp (CMAKE_ARGS="-DGGML_NATIVE=ON" for this CPU's
instructions); without them it says so and measures nothing.
"""

import argparse
import importlib.util
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
from fused_model import FusedModel, Shape, random_weights
from interleaved import Batch, least_times, shown

if TYPE_CHECKING:
    from llama_model import LlamaModel

PROMPT, NEW, CONTEXT = 512, 16, 1024
GOALS = {"decode": 1.0, "prefill": 1.5}
NEEDED = {"llama_cpp": "llama-cpp-python", "gguf": "gguf"}
CHECKED = 8  # tokens behind the prompt
CLOSE = 0.05  # of the root mean square of the logits


def batch_of(call: Callable[[], object]) -> Batch:
    """As in kernel_rows, but by the CPU time of all threads: llama.cpp may have its own."""

    def batch(calls: int) -> int:
        start = time.process_time_ns()
        for _ in itertools.repeat(None, calls):
            call()
        return time.process_time_ns() - start

    return batch


def compare(ours: FusedModel, theirs: "LlamaModel", prompt: list[int]) -> None:
    """Both read the same text, what llama.cpp generates. RuntimeError when they are not the same model."""
    text, start = prompt, 0
    worst = 0.0
    agreed = 0
    for _ in range(CHECKED):
        expected = torch.from_numpy(theirs.logits(text, start).copy())
        got = ours.logits(text, start).float().cpu()
        start += len(text)
        scale = expected.square().mean().sqrt()
        worst = max(worst, float((got - expected).square().mean().sqrt() / scale))
        token, mine = int(expected.argmax()), int(got.argmax())
        agreed += token == mine
        # Two tokens may be as good as equal; then ours must be the other of the two.
        if worst > CLOSE or expected[token] - expected[mine] > CLOSE * scale:
            raise RuntimeError(
                f"musa and llama.cpp differ behind {start} tokens: logits by {worst:.2%} of their root mean square, "
                f"tokens {mine} and {token}"
            )
        text = [token]
    one_by_one, position = [prompt[0]], PROMPT
    while len(one_by_one) <= CHECKED:
        one_by_one.append(int(ours.logits(one_by_one[-1:], position).argmax()))
        position += 1
    replayed = ours.decode(prompt[0], PROMPT, CHECKED)
    if replayed != one_by_one[1:]:
        raise RuntimeError(f"the graph of a step chooses the tokens {replayed}, its operators {one_by_one[1:]}")
    print(f"the same model: logits differ by at most {worst:.2%}, {agreed} of {CHECKED} tokens are the same")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="time spent on each stage (default: 20)")
    arguments = parser.parse_args()
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"nothing to compare with: {' and '.join(missing)} not installed (pip install {' '.join(missing)})")
        return 0
    from llama_model import LlamaModel, write_gguf

    torch.set_num_threads(1)
    shape = Shape()
    weights = random_weights(shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(shape, weights, CONTEXT, path)
        theirs = LlamaModel(path, shape, CONTEXT)
        ours = FusedModel(shape, weights, CONTEXT)
        del weights
        return measure(ours, theirs, shape, arguments.seconds)


def measure(ours: FusedModel, theirs: "LlamaModel", shape: Shape, seconds: float) -> int:
    prompt = torch.randint(shape.vocabulary, (PROMPT,), generator=torch.Generator().manual_seed(1)).tolist()
    compare(ours, theirs, prompt)
    sides = {
        "prefill": [lambda side=side: side.logits(prompt, 0) for side in (ours, theirs)],
        "decode": [lambda side=side: side.decode(prompt[0], PROMPT, NEW) for side in (ours, theirs)],
    }
    met = True
    for stage, tokens in (("prefill", PROMPT), ("decode", NEW)):
        musa, llama = least_times([batch_of(side) for side in sides[stage]], 1, seconds)
        goal = GOALS[stage]
        ok = llama / musa >= goal
        met &= ok
        rates = ", ".join(
            f"{name} {shown(ns / tokens)} a token = {tokens / ns * 1e9:.0f} tokens/s"
            for name, ns in (("llama.cpp", llama), ("musa", musa))
        )
        print(f"{stage:8} {rates}: {llama / musa:.2f}x (goal {goal:g})" + ("" if ok else " MISSED"), flush=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
