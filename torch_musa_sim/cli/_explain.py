"""`musa-sim ops --explain`: which of several native kernels a call would take, and why."""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from torch_musa_sim.cli import _device
from torch_musa_sim.cli._errors import UsageError

PRODUCTS = ("mm", "addmm", "linear", "bmm", "baddbmm")
ATTENTION = "scaled_dot_product_attention"
FORMS = (
    "mm MxNxK DTYPE [a=rows|columns] [b=rows|columns] [measure] (also addmm and linear; bmm and baddbmm BxMxNxK), or "
    f"{ATTENTION} BxHxMxE DTYPE [keys=N] [kv_heads=N] [causal] [measure]"
)
DTYPES = ("float32", "bfloat16", "float16")
LARGEST = 1 << 31


class Explain(argparse.Action):
    """Answers the questions and ends the command, as --help does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(explain(str(values)))
        parser.exit()


def explain(question: str) -> str:
    """The answer as text. Raises UsageError when the question isn't one of `FORMS`."""
    words = question.split()
    if len(words) < 3:
        raise UsageError(f"--explain takes an operator, sizes and a dtype, got {question!r}; accepted: {FORMS}")
    op, sizes, dtype, *options = words
    if op not in (*PRODUCTS, ATTENTION):
        raise UsageError(f"--explain knows no choice for {op!r}; accepted: {FORMS}")
    if dtype not in DTYPES:
        raise UsageError(f"--explain: there are native kernels for {', '.join(DTYPES)}, got {dtype!r}")
    if op == ATTENTION:
        return _attention(_sizes(op, sizes, "BxHxMxE"), dtype, options)
    return _product(op, _sizes(op, sizes, "BxMxNxK" if op in ("bmm", "baddbmm") else "MxNxK"), dtype, options)


def _sizes(op: str, text: str, form: str) -> list[int]:
    parts = text.split("x")
    if len(parts) != form.count("x") + 1 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--explain: the sizes of {op} are {form}, as {_example(form)}, got {text!r}")
    sizes = [int(part) for part in parts]
    if not all(0 < size < LARGEST for size in sizes) or math.prod(sizes) >= LARGEST**2:
        raise UsageError(f"--explain: sizes are 1 .. {LARGEST - 1}, got {text!r}")
    return sizes


def _example(form: str) -> str:
    return {"MxNxK": "16x4096x4096", "BxMxNxK": "8x16x128x64"}.get(form, "1x32x1x128")


def _options(op: str, words: list[str], accepted: dict[str, str]) -> dict[str, str]:
    """`words` by name, a word without value as "". `accepted`: name -> what its value may be, for messages."""
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in accepted:
            raise UsageError(f"--explain: {op} has no option {word!r}; accepted: {', '.join(accepted)}")
        choices = accepted[name]
        fits = value.isdigit() and 0 < int(value) < LARGEST if choices == "N" else value in choices.split("|")
        if not fits or (choices == "") != ("=" not in word):
            raise UsageError(f"--explain: {word!r} should be {name}{'=' if choices else ''}{choices}")
        found[name] = value
    return found


def _product(op: str, sizes: list[int], dtype: str, words: list[str]) -> str:
    options = _options(op, words, {"a": "rows|columns", "b": "rows|columns", "measure": ""})
    batch, m, n, k = sizes if len(sizes) == 4 else [1, *sizes]
    _check_memory(batch * (m * k + k * n + m * n), "measure" in options)
    _device.register()
    import torch

    from torch_musa_sim import _C

    answer = _C._explain_product(
        "addmm" if op == "linear" else op,
        batch,
        m,
        n,
        k,
        getattr(torch, dtype),
        options.get("a", "rows") == "columns",
        options.get("b", "columns" if op == "linear" else "rows") == "columns",
        "measure" in options,
    )
    lead = f"{batch}, " if len(sizes) == 4 else ""
    return _text(f"{op} of a [{lead}{m}, {k}] and b [{lead}{k}, {n}], {dtype}", answer)


def _attention(sizes: list[int], dtype: str, words: list[str]) -> str:
    options = _options(ATTENTION, words, {"keys": "N", "kv_heads": "N", "causal": "", "measure": ""})
    batch, heads, queries, dim = sizes
    keys, kv_heads = int(options.get("keys", queries)), int(options.get("kv_heads", heads))
    if heads % kv_heads:
        raise UsageError(f"--explain: {heads} heads are not a multiple of kv_heads={kv_heads}")
    _check_memory(batch * dim * (2 * heads * queries + 2 * kv_heads * keys), "measure" in options)
    _device.register()
    import torch

    from torch_musa_sim import _C

    answer = _C._explain_attention(
        batch, heads, kv_heads, queries, keys, dim, getattr(torch, dtype), "causal" in options, "measure" in options
    )
    title = f"{ATTENTION} of query {sizes} and keys [{batch}, {kv_heads}, {keys}, {dim}], {dtype}"
    return _text(title, answer)


def _check_memory(numbers: int, measure: bool) -> None:
    if measure and numbers > 1 << 30:
        raise UsageError("--explain: measure takes up to 2^30 numbers; without it sizes may be larger")


def _text(title: str, answer: dict[str, Any]) -> str:
    rows = [("", "variant", "model", "measured", "")]
    for variant in answer["variants"]:
        rows.append(
            (
                "*" if variant["name"] == answer["taken"] else "",
                variant["name"],
                _time(variant["estimate_ns"]),
                _time(variant["time_ns"]),
                f"not: {variant['excluded']}" if variant["excluded"] else "",
            )
        )
    lines = [title, f"key: {answer['key']}"]
    lines += [f"{mark:1} {name:18} {model:>10} {time:>10}  {why}".rstrip() for mark, name, model, time, why in rows]
    lines.append(f"taken: {answer['taken']} ({answer['source']})")
    return "\n".join(lines)


def _time(nanoseconds: float | None) -> str:
    if not nanoseconds:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"
