"""What a replayed decode step costs beside the same step run eagerly: `python benchmarks/graphs.py`.

A Qwen3-MoE of stock transformers (random weights, bf16, StaticCache, one thread) decodes one token a step on the card.
Eager steps pay for Python, autograd's dispatch and the bridge; a replay pays for the kernels. Eager and replayed steps
alternate in short batches, the cost of a step is the least thread CPU time per step over all batches (least, because
whatever disturbs a batch only adds), and a row is the ratio graph / eager of these. Prints the table and exits with 1
when a row is above its limit.
"""

import argparse
import gc
import os
import sys
import time
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import torch
import transformers


@dataclass(frozen=True)
class Row:
    """A model's size: `layers` blocks of width `hidden`."""

    layers: int
    hidden: int
    limit: float  # of graph / eager
    batch: int  # steps timed together

    @property
    def name(self) -> str:
        return f"decode, {self.layers} layers, H={self.hidden}"


ROWS = (Row(2, 64, 0.25, 8), Row(4, 1024, 1.0, 2))


class Decoder:
    """Greedy decoding of one sequence, a token a step, on static memory; the same weights and prompt at each call."""

    def __init__(self, layers: int, hidden: int, steps: int) -> None:
        transformers.set_seed(0)
        config = transformers.Qwen3MoeConfig(
            vocab_size=512,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=hidden // 4,
            intermediate_size=2 * hidden,
            moe_intermediate_size=hidden // 2,
            num_experts=8,
            num_experts_per_tok=2,
            max_position_embeddings=256,
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=None,
            pad_token_id=0,
        )
        self.model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, experts_implementation="grouped_mm"
        )
        self.model = self.model.eval().to("musa")
        prompt = torch.arange(3, 11)[None].to("musa")
        self.cache = transformers.StaticCache(config=config, max_cache_len=prompt.shape[1] + steps)
        self.position = torch.arange(prompt.shape[1]).to("musa")[None]
        self.token = prompt
        self.graph = torch.musa.MUSAGraph()
        self._advance()
        # One token from here on, in memory that stays where it is.
        self.token = self.token.clone()
        self.position = self.position[:, -1:].clone()

    @torch.inference_mode()
    def _advance(self) -> None:
        logits = self.model(
            input_ids=self.token, position_ids=self.position, past_key_values=self.cache, use_cache=True
        ).logits
        best = logits[:, -1:].argmax(-1)
        if self.token.shape == best.shape:
            self.token.copy_(best)
            self.position.add_(1)
        else:
            self.token = best
            self.position = self.position[:, -1:] + 1

    def eager_step(self) -> int:
        self._advance()
        return int(self.token.item())

    def capture(self) -> None:
        with torch.musa.graph(self.graph):
            self._advance()

    def replayed_step(self) -> int:
        self.graph.replay()
        return int(self.token.item())


def least_times(row: Row, seconds: float) -> tuple[float, float]:
    """Least CPU time of one step in ns, (eager, graph), from alternating batches for about `seconds` of wall time."""
    most = 160  # steps that the cache has room for
    eager, graphed = (Decoder(row.layers, row.hidden, most) for _ in range(2))
    graphed.capture()
    sides = (eager.eager_step, graphed.replayed_step)
    for step in sides:  # warm-up: lazy initialisation, the card's first touch of its memory
        step()
    least = [float("inf"), float("inf")]
    end, batches = time.monotonic() + seconds, 0
    while (batches < 6 or time.monotonic() < end) and (batches + 2) * row.batch < most:
        for which in (0, 1) if batches % 2 else (1, 0):
            start = time.thread_time_ns()
            for _ in range(row.batch):
                sides[which]()
            least[which] = min(least[which], (time.thread_time_ns() - start) / row.batch)
        batches += 1
    return least[0], least[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose name contains this text")
    parser.add_argument("--seconds", type=float, default=4.0, help="time spent on a row (default: 4)")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if arguments.only in row.name]
    if not rows:
        parser.error(f"no row contains {arguments.only!r}; the rows are: {', '.join(row.name for row in ROWS)}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    gc.disable()
    width = max(len(row.name) for row in rows)
    print(f"{'step':{width}}  {'eager':>10}  {'graph':>10}  {'ratio':>6}  {'limit':>6}")
    missed = 0
    for row in rows:
        eager, graph = least_times(row, arguments.seconds)
        met = graph <= row.limit * eager
        missed += not met
        print(
            f"{row.name:{width}}  {eager / 1e6:7.2f} ms  {graph / 1e6:7.2f} ms  {graph / eager:6.2f}  "
            f"{row.limit:6.2f}  {'ok' if met else 'MISSED'}",
            flush=True,
        )
    print(f"{len(rows) - missed} of {len(rows)} rows within their limit")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
