"""The table of torch_musa's names, torch_musa_sim/data/torch_musa_names.tsv, and where each is to be found."""

import csv
import functools
import importlib
import importlib.metadata
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import torch_musa_sim

TABLE = Path(torch_musa_sim.__file__).parent / "data" / "torch_musa_names.tsv"
TO_COME = Path(__file__).with_name("names_to_come.txt")
SCOPES = ("now", "collectives", "no-meaning")


@dataclass(frozen=True)
class Name:
    module: str
    name: str
    kind: str
    signature: str
    scope: str

    def __str__(self) -> str:
        return f"{self.module} {self.name}"


@functools.cache
def all_names() -> tuple[Name, ...]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return tuple(Name(**row) for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@functools.cache
def to_come() -> frozenset[str]:
    """Names that other parts of the work will bring; must end empty."""
    lines = TO_COME.read_text().splitlines() if TO_COME.exists() else []
    return frozenset(line for line in lines if line and not line.startswith("#"))


def look_up(start: Any, path: str) -> Any:
    """`path` from `start`: attributes separated by dots, "name()" for the result of a call."""
    found = start
    for part in path.split("."):
        found = getattr(found, part.removesuffix("()"))
        if part.endswith("()"):
            found = found()
    return found


def resolve(module: str, name: str) -> Any:
    """What the table's (module, name) stands for here; raises LookupError, AttributeError or ImportError."""
    if module == "env":
        return {entry["name"]: entry for entry in torch_musa_sim._C._settings()}[name]
    if module == "console":
        return importlib.metadata.entry_points(group="console_scripts")[name].load()
    if module == "entry point":
        return importlib.metadata.entry_points(group=name)["torch_musa_sim"].load()
    if module == "torch":
        return look_up(torch, name)
    if module == "torch.musa":
        importlib.import_module("torch_musa")
        look_up(importlib.import_module("torch_musa"), name)
        return look_up(torch.musa, name)
    return look_up(importlib.import_module(module), name)


def is_there(name: Name) -> bool:
    try:
        resolve(name.module, name.name)
    except (LookupError, AttributeError, ImportError):
        return False
    return True


def parameters(signature: str) -> str:
    """The part of a signature between its outer parentheses."""
    depth = 0
    for position, letter in enumerate(signature):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            return signature[1:position]
    raise ValueError(f"no signature: {signature!r}")


def has_signature(name: Name) -> bool:
    """Whether the table gives this name's parameters (for a class it may give its bases instead)."""
    if name.kind == "class":
        return name.module == "torch.musa" and name.signature.startswith("(")
    return name.kind in ("function", "method", "classmethod", "staticmethod", "contextmanager") and bool(
        re.match(r"\(.*\)", name.signature)
    )
