"""A log of the operators that run on musa, with what went in and came out: TORCH_MUSA_OP_DEBUG=on.

The folder TORCH_MUSA_OP_DEBUG_DIR gets a file full_log.txt with a line for each call, and from level 2 on a folder for
each call with a file for each tensor. Reading values costs virtual time, as it would on a card.
"""

import itertools
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_musa_sim import _C

_OFF = ("", "0", "off", "false")


class OpDebug(TorchDispatchMode):
    """While it is active, calls with a musa tensor among arguments or results are logged.

    folder: made if it isn't there; if it is, one with a number behind it is made. level: 1 shapes and scalars, 2 also
    largest, smallest, mean and variance of each tensor, 3 the first `length` values, 4 all values, 5 as 2 and 3, 6 as 2
    and 4. only, without: parts of operator names in lower case; one of both at most. Raises ValueError otherwise.
    """

    def __init__(
        self, folder: Path, level: int = 1, length: int = 50, only: Sequence[str] = (), without: Sequence[str] = ()
    ) -> None:
        super().__init__()
        if only and without:
            raise ValueError("TORCH_MUSA_OP_DEBUG_LIST and TORCH_MUSA_OP_DEBUG_BLACK_LIST exclude each other; set one")
        if not 1 <= level <= 6 or length < 0:
            raise ValueError(f"the level must be 1 .. 6 and the length not negative, but got {level} and {length}")
        self.folder = _fresh_folder(folder)
        self._statistics = level in (2, 5, 6)
        self._values: int | None = {3: length, 5: length, 4: None, 6: None}.get(level, 0)
        self._only, self._without = tuple(only), tuple(without)
        self._number = itertools.count()
        self._lock = threading.Lock()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = tree_leaves((args, kwargs))
        name = str(func.name() if hasattr(func, "name") else func)
        wanted = self._is_wanted(name.lower())
        # What an operator overwrites must be read before it runs.
        before = [self._describe(value) for value in inputs] if wanted and _any_on_musa(inputs) else None
        result = func(*args, **kwargs)
        outputs = tree_leaves(result)
        if wanted and (before is not None or _any_on_musa(outputs)):
            before = [self._describe(value) for value in inputs] if before is None else before
            self._write(name, before, [self._describe(value) for value in outputs])
        return result

    def _is_wanted(self, name: str) -> bool:
        if self._only:
            return any(part in name for part in self._only)
        return not any(part in name for part in self._without)

    def _describe(self, value: Any) -> tuple[str, str]:
        """(for the line, for a file of its own)."""
        if not isinstance(value, Tensor):
            return repr(value), ""
        line = f"{value.device} {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        if not (self._statistics or self._values != 0) or value.layout != torch.strided or value.is_quantized:
            return line, ""
        details = [line]
        on_host = value.detach().cpu()
        if self._statistics and on_host.numel() and not on_host.is_complex():
            numbers = on_host.double()
            details.append(
                f"max {numbers.max().item()} min {numbers.min().item()} mean {numbers.mean().item()} "
                f"variance {numbers.var(correction=0).item()}"
            )
        if self._values != 0:
            flat = on_host.flatten()
            details.append(str((flat if self._values is None else flat[: self._values]).tolist()))
        return line, "\n".join(details) + "\n"

    def _write(self, name: str, inputs: list[tuple[str, str]], outputs: list[tuple[str, str]]) -> None:
        with self._lock:
            number = next(self._number)
            with (self.folder / "full_log.txt").open("a") as log:
                log.write(f"{number} {name}({', '.join(i[0] for i in inputs)}) -> {', '.join(o[0] for o in outputs)}\n")
            for kind, described in (("input", inputs), ("output", outputs)):
                for position, (_, text) in enumerate(described):
                    if text:
                        place = self.folder / f"{number}_{name.replace('::', '.')}"
                        place.mkdir(exist_ok=True)
                        (place / f"{kind}_{position}.txt").write_text(text)


def _any_on_musa(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Tensor) and value.device.type == "musa" for value in values)


def _fresh_folder(folder: Path) -> Path:
    for number in itertools.count():
        place = folder if number == 0 else folder.with_name(f"{folder.name}_{number}")
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            continue
        return place
    raise AssertionError("the count is endless")


def _listed(text: str) -> list[str]:
    return [part.strip().lower() for part in text.split(",") if part.strip()]


def start_if_asked() -> None:
    """Starts the log for the rest of the process when TORCH_MUSA_OP_DEBUG says so, or warns that there can be none."""
    settings = {entry["name"]: entry["value"] or "" for entry in _C._settings()}
    if settings["TORCH_MUSA_OP_DEBUG"].lower() in _OFF:
        return
    _C._check_settings()
    try:
        mode = OpDebug(
            Path(settings["TORCH_MUSA_OP_DEBUG_DIR"]).expanduser(),
            int(settings["TORCH_MUSA_OP_DEBUG_LEVEL"]),
            int(settings["TORCH_MUSA_OP_DEBUG_LENGTH"]),
            _listed(settings["TORCH_MUSA_OP_DEBUG_LIST"]),
            _listed(settings["TORCH_MUSA_OP_DEBUG_BLACK_LIST"]),
        )
    except OSError as error:
        folder = settings["TORCH_MUSA_OP_DEBUG_DIR"]
        warnings.warn(
            f"no log of operators: TORCH_MUSA_OP_DEBUG_DIR={folder} can't be made ({error.strerror}); name a folder "
            "that can be written",
            stacklevel=2,
        )
        return
    except ValueError as error:
        warnings.warn(f"no log of operators: {error}", stacklevel=2)
        return
    mode.__enter__()
