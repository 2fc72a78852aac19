"""What `make demo` runs: a model answers a question on the CPU and on a simulated card, and the answers are compared.

The model and the code that asks it are those of answer.py, in which nothing but the device string is about musa. After
the answer come two tables: the operators that ran on the card, and the card's memory. Exits with 1 when a token of the
answer differs between the two devices.
"""

import argparse
import os
import sys
import time

import answer
import make_checkpoint
import torch
import transformers

MOST_ROWS = 16
DECIMAL, BINARY = ("", "k", "M", "G", "T"), ("", "Ki", "Mi", "Gi", "Ti")


def styled(text: str, code: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
    return text if plain else f"\033[{code}m{text}\033[0m"


def heading(text: str) -> None:
    print(f"\n{styled(text, '1')}", flush=True)


def size(count: float, binary: bool = False) -> str:
    """A number of bytes for people: "1.41 GB", or "1.31 GiB" when `binary`."""
    power = 0
    step = 1024 if binary else 1000
    while count >= step and power < 4:
        count, power = count / step, power + 1
    return f"{count:.{0 if power == 0 else 2}f} {(BINARY if binary else DECIMAL)[power]}B"


def duration(ns: float) -> str:
    for unit, length in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= length:
            return f"{ns / length:.2f} {unit}"
    return f"{ns:.0f} ns"


def table(columns: list[str], rows: list[list[str]]) -> None:
    """Prints a ruled table; the first column is flush left, the others flush right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]

    def line(cells: list[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])

    rule = styled("─" * (sum(widths) + 2 * len(widths) - 2), "2")
    print(f"{styled(line(columns), '2')}\n{rule}")
    for row in rows:
        print(line(row))
    print(rule)


def print_operators() -> None:
    """The operators that took most of the card's virtual time, the rest in one line, and the sum."""
    statistics = sorted(torch.musa.op_statistics(), key=lambda op: op.device_ns, reverse=True)

    def row(name: str, kind: str, ops: list[torch.musa.OperatorStatistics]) -> list[str]:
        calls, moved, time_ns = (sum(getattr(op, field) for op in ops) for field in ("calls", "bytes", "device_ns"))
        return [name, kind, f"{calls:,}", size(moved), duration(time_ns)]

    shown, rest = statistics[:MOST_ROWS], statistics[MOST_ROWS:]
    rows = [row(op.name, "bridged" if op.bridged else "native", [op]) for op in shown]
    if rest:
        rows.append(row(f"{len(rest)} more", "", rest))
    rows.append(row("all", "", statistics))
    table(["operator", "kernel", "calls", "bytes", "virtual time"], rows)
    bridged = sum(op.bridged for op in statistics)
    copies = sum(op.copies for op in statistics)
    print(
        f"{len(statistics)} operators: {bridged} bridged (PyTorch's CPU kernel, on the card's memory), "
        f"{len(statistics) - bridged} native; {copies} results copied"
    )


def print_memory() -> None:
    free, total = torch.musa.mem_get_info()
    figures = {
        "tensors": torch.musa.memory_allocated(),
        "tensors, at the peak": torch.musa.max_memory_allocated(),
        "held by the caching allocator": torch.musa.memory_reserved(),
        "free on the card": free,
        "capacity of the card": total,
    }
    table(["memory", "size"], [[name, size(count, binary=True)] for name, count in figures.items()])


def ask(
    device: str, tokenizer: transformers.PreTrainedTokenizerBase, question: str, length: int
) -> tuple[torch.nn.Module, list[int]]:
    """Loads the model on a device and lets it answer; returns it and the tokens of the answer."""
    began = time.monotonic()
    model = answer.load(make_checkpoint.CHECKPOINT, device)
    loaded = time.monotonic()
    if device != "cpu":
        torch.musa.reset_op_statistics()
        start, end = (torch.musa.Event(enable_timing=True) for _ in range(2))
        start.record()
    tokens = answer.answer(model, tokenizer, question, length)
    done = time.monotonic()
    note = f"loaded in {loaded - began:.1f} s, {len(tokens)} tokens in {done - loaded:.1f} s on this machine"
    if device != "cpu":
        end.record()
        end.synchronize()
        virtual = start.elapsed_time(end)
        note += f"; virtual time of the card {virtual:.1f} ms, {len(tokens) / virtual * 1e3:.0f} tokens/s"
    print(styled(note, "2"), flush=True)
    return model, tokens


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default=answer.QUESTION)
    parser.add_argument("--length", type=int, default=64, help="tokens in the answer, at most (default: 64)")
    arguments = parser.parse_args()
    # Decoding is short of memory bandwidth, not of cores; a second thread only waits where the machine is busy.
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    checkpoint = make_checkpoint.make()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    config = transformers.AutoConfig.from_pretrained(checkpoint)

    heading(f"Question: {arguments.question}")
    print(
        f"{config.architectures[0]} of transformers {transformers.__version__}: {config.num_hidden_layers} layers, "
        f"{config.num_local_experts} experts, {config.num_experts_per_tok} per token, weights of SmolLM2-135M, fp32"
    )
    heading("Answer on cpu")
    _, expected = ask("cpu", tokenizer, arguments.question, arguments.length)
    heading(f"Answer on musa ({torch.musa.get_device_name()}, simulated)")
    model, actual = ask("musa", tokenizer, arguments.question, arguments.length)

    equal = sum(a == b for a, b in zip(actual, expected, strict=False))
    same = actual == expected
    print(styled(f"equal to CPU: {equal} of {len(expected)} tokens", "1;32" if same else "1;31"))
    heading("What ran on the card while it answered")
    print_operators()
    heading(f"Memory of {model.device}")
    print_memory()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
