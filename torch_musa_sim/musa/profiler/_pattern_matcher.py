"""Habits that cost time on a card, found in a finished profile: torch's matchers, for musa.

A matcher takes a `torch.profiler.profile` or `torch.autograd.profiler.profile` made with record_shapes=True and
with_stack=True, after its `with` block. Speed-ups are estimated in the cards' virtual time.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler._pattern_matcher import (
    Conv2dBiasFollowedByBatchNorm2dPattern,
    ExtraCUDACopyPattern,
    GradNotSetToNonePattern,
    OptimizerSingleTensorPattern,
    Pattern,
    SynchronizedDataLoaderPattern,
    input_dtypes,
    input_shapes,
    source_code_location,
)
from torch.profiler._pattern_matcher import MatMulDimInFP16Pattern as _MatMulDimInFP16Pattern

from torch_musa_sim.musa.architecture import is_tf32_supported

__all__ = [
    "ExtraMUSACopyPattern",
    "FP32MatMulPattern",
    "MatMulDimInFP16Pattern",
    "Pattern",
    "report_all_anti_patterns",
]

Shapes = tuple[tuple[int, ...], ...]


def _virtual_ms(run: Callable[[], object]) -> float:
    """Virtual milliseconds from the call of `run` to the end of its work, on an idle card."""
    run()  # memory is cached from here on
    torch.accelerator.synchronize()
    begin, end = (torch.Event("musa", enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _ratios(events: Sequence[Any], ratio: Callable[[Shapes], float]) -> dict[Shapes, float]:
    """For each set of input shapes: time of the better way by time of the way found."""
    return {shapes: ratio(shapes) for shapes in {input_shapes(event) for event in events}}


class ExtraMUSACopyPattern(ExtraCUDACopyPattern):
    """A tensor that was filled on the CPU only to be moved to a card: `torch.zeros(100).to("musa")`."""

    def __init__(self, prof: Any, should_benchmark: bool = False) -> None:
        super().__init__(prof, should_benchmark)
        self.name = "Extra MUSA Copy Pattern"
        self.description = "A tensor was filled on the CPU and moved to a card at once. Create it on the card."

    @property
    def skip(self) -> bool:
        """Stacks and shapes are needed."""
        return bool(super().skip)

    def match(self, event: Any) -> bool:
        """Whether `event` is the aten::to of such a move."""
        return bool(super().match(event))

    def benchmark(self, events: Sequence[Any]) -> dict[Shapes, float]:
        """Time of creating on the card by time of creating on the CPU and moving, for each shape."""

        def ratio(shapes: Shapes) -> float:
            size = shapes[0]
            moved = _virtual_ms(lambda: torch.ones(size).to("musa"))
            return _virtual_ms(lambda: torch.ones(size, device="musa")) / moved

        return _ratios(events, ratio)


class FP32MatMulPattern(Pattern):
    """Products of float32 matrices while TF32 is off."""

    def __init__(self, prof: Any, should_benchmark: bool = False) -> None:
        super().__init__(prof, should_benchmark)
        self.name = "FP32 MatMul Pattern"
        self.description = (
            "Products of float32 matrices run without TF32. Set torch.backends.musa.matmul.allow_tf32 = True if their "
            "accuracy allows it."
        )

    @property
    def skip(self) -> bool:
        """Only on a card that has TF32, and with shapes recorded."""
        return super().skip or not is_tf32_supported() or not self.prof.record_shapes

    def match(self, event: Any) -> bool:
        """Whether `event` is a product of float32 matrices on a card, made while TF32 was off."""
        if event.name not in ("aten::mm", "aten::bmm", "aten::addmm") or event.extra_fields.allow_tf32_cublas:
            return False
        inputs = [given for given in event.extra_fields.inputs if hasattr(given, "dtype")]
        return bool(inputs) and all(
            given.dtype == torch.float32 and given.device.type == "musa" for given in inputs if given.sizes
        )

    def report(self, event: Any) -> str:
        """The advice, which is the same for every place."""
        return self.description

    def benchmark(self, events: Sequence[Any]) -> dict[Shapes, float]:
        """Time with TF32 by time without, for each pair of shapes, from the peaks of the card's model."""

        def ratio(shapes: Shapes) -> float:
            matrices = [torch.empty(shape, device="musa") for shape in shapes if len(shape) >= 2][-2:]
            slow = _virtual_ms(lambda: torch.matmul(*matrices))
            precision = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            try:
                return _virtual_ms(lambda: torch.matmul(*matrices)) / slow
            finally:
                torch.set_float32_matmul_precision(precision)

        return _ratios(events, ratio)


class MatMulDimInFP16Pattern(_MatMulDimInFP16Pattern):
    """Products of half or bfloat16 matrices whose sizes aren't multiples of 8."""

    @property
    def skip(self) -> bool:
        """Stacks and shapes are needed."""
        return bool(super().skip)

    def match(self, event: Any) -> bool:
        """Whether `event` is such a product."""
        return bool(super().match(event))

    def benchmark(self, events: Sequence[Any]) -> dict[Shapes, float]:
        """Time with sizes rounded up to 8 by time as found, for each pair of shapes."""
        dtypes = {input_shapes(event): next(t for t in input_dtypes(event) if t is not None) for event in events}

        def product(shapes: Shapes, dtype: torch.dtype, multiple: int) -> float:
            sizes = [[multiple * math.ceil(size / multiple) for size in shape] for shape in shapes if len(shape) >= 2]
            a, b = (torch.empty(size, device="musa", dtype=dtype) for size in sizes[-2:])
            return _virtual_ms(lambda: torch.matmul(a, b))

        return _ratios(events, lambda shapes: product(shapes, dtypes[shapes], 8) / product(shapes, dtypes[shapes], 1))


def report_all_anti_patterns(
    prof: Any, should_benchmark: bool = False, print_enable: bool = True, json_report_dir: str | None = None
) -> None:
    """Looks for every pattern in `prof` and prints what was found, with the place in the source.

    should_benchmark: also estimate the speed-up. json_report_dir: a folder for `torchtidy_report.json`, which maps
    source files to findings; what it holds of other files stays.
    """
    matchers: list[Pattern] = [
        ExtraMUSACopyPattern(prof, should_benchmark),
        FP32MatMulPattern(prof, should_benchmark),
        OptimizerSingleTensorPattern(prof, should_benchmark),
        SynchronizedDataLoaderPattern(prof, should_benchmark),
        GradNotSetToNonePattern(prof, should_benchmark),
        Conv2dBiasFollowedByBatchNorm2dPattern(prof, should_benchmark),
        MatMulDimInFP16Pattern(prof, should_benchmark),
    ]
    findings: dict[str, list[dict[str, object]]] = {}
    texts: dict[str, None] = {}  # each once, in order
    summaries = []
    for matcher in matchers:
        events = matcher.matched_events()
        if not events:
            continue
        summaries.append(matcher.summary(events))
        for event in events:
            text = matcher.report(event)
            if text in texts:
                continue
            texts[text] = None
            file, _, line = source_code_location(event).rpartition(":")
            if file:
                findings.setdefault(file, []).append(
                    {
                        "line_number": int(line),
                        "name": matcher.name,
                        "url": matcher.url,
                        "message": matcher.description,
                    }
                )
    if json_report_dir is not None:
        path = Path(json_report_dir) / "torchtidy_report.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | findings, indent=4))
    if print_enable:
        ruler = f"{'-' * 40}TorchTidy Report{'-' * 40}"
        print("\n".join([ruler, "Matched Events:", *texts, "Summary:", *summaries, ruler]))
