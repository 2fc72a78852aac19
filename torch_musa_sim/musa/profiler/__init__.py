"""Profiling as torch.cuda.profiler has it, and torch_musa's analyses of a finished profile.

`start` and `stop` switch a recording of the whole process on and off; what was recorded is the result of `stop`, and a
Chrome trace in the file that `init` named.
"""

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import _profiler_enabled
from torch.profiler import ProfilerActivity

__all__ = ["init", "profile", "set_profiler_attributes", "start", "stop"]

# The analyses, by the submodule that has them: imported at first use, as they bring torch's benchmark tools along.
_ANALYSES = {
    "BasicEvaluation": "_utils",
    "ExtraMUSACopyPattern": "_pattern_matcher",
    "FP32MatMulPattern": "_pattern_matcher",
    "MatMulDimInFP16Pattern": "_pattern_matcher",
    "report_all_anti_patterns": "_pattern_matcher",
}

_output_file: str | None = None
_running: torch.profiler.profile | None = None


def init(output_file: str, flags: list[str] | None = None, output_mode: str = "key_value") -> None:
    """From now on `stop` writes a Chrome trace to `output_file`.

    flags, output_mode: of CUDA's profiler; the trace always holds everything and is JSON. Raises ValueError for an
    output_mode other than "key_value" or "csv", as torch did.
    """
    global _output_file
    if output_mode not in ("key_value", "csv"):
        raise ValueError(f'supported output modes are "key_value" and "csv", got {output_mode!r}')
    _output_file = output_file


def start() -> None:
    """Begins to record operators and cards. Does nothing when it or torch.profiler is recording already."""
    global _running
    if _running is None and not _profiler_enabled():
        _running = torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1])
        _running.start()


def stop() -> torch.profiler.profile | None:
    """Ends the recording of `start` and returns it, finished; None when there was none."""
    global _running
    recorded, _running = _running, None
    if recorded is not None:
        recorded.stop()
        if _output_file is not None:
            recorded.export_chrome_trace(_output_file)
    return recorded


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Records while the block runs."""
    try:
        start()
        yield
    finally:
        stop()


def set_profiler_attributes() -> None:
    """Lets torch.profiler have the analyses, where code for torch_musa looks for them."""
    torch.profiler.__getattr__ = __getattr__  # type: ignore[attr-defined, method-assign]


def __getattr__(name: str) -> Any:
    if name in _ANALYSES:
        return getattr(importlib.import_module(f"{__name__}.{_ANALYSES[name]}"), name)
    raise AttributeError(f"there is no {name!r} in {__name__} or torch.profiler")
