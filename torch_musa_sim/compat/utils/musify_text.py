"""Replacement of CUDA names in source text, a line at a time.

A file's parts between MUSIFY_EXCL_START and MUSIFY_EXCL_STOP, and lines with MUSIFY_EXCL_LINE, stay as they are.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from .logger_util import LOGGER

Match = tuple[tuple[str, int], Any]  # ((keyword as it stands in the text, position), value)


def is_overlap(x: Match, y: Match) -> bool:
    """Whether two matches share a character."""
    (first, start), (second, begin) = x[0], y[0]
    return start < begin + len(second) and begin < start + len(first)


def should_replace(old: Match, new: Match) -> bool:
    """Which of two overlapping matches counts: `new` (True) when it begins earlier, or there and is longer."""
    (first, start), (second, begin) = old[0], new[0]
    return (begin, -len(second)) < (start, -len(first))


class KeywordMap:
    """Keywords with a value each, and searches for all of them at once. Call `finalize` after the last `add`."""

    def __init__(self, case_insensitive: bool = False) -> None:
        self._fold: Callable[[str], str] = str.lower if case_insensitive else str
        self._values: dict[str, Any] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, key: str, value: Any) -> None:
        """Adds a keyword; one that is there gets the new value."""
        if not key:
            raise ValueError("an empty keyword would be found everywhere")
        self._values[self._fold(key)] = value
        self._pattern = None

    def finalize(self) -> None:
        """Makes the map ready for searches."""
        longest_first = sorted(self._values, key=len, reverse=True)
        # Matched by looking ahead, so that overlapping keywords are found, too.
        self._pattern = re.compile(f"(?=({'|'.join(map(re.escape, longest_first)) or '(?!)'}))")

    def search_all(self, text: str) -> Iterator[Match]:
        """At each position the longest keyword that begins there, in order of position."""
        if self._pattern is None:
            raise RuntimeError("the keyword map isn't finalized: call finalize() after the last add()")
        for found in self._pattern.finditer(self._fold(text)):
            start, end = found.span(1)
            yield (text[start:end], start), self._values[found.group(1)]

    def search_longest(self, text: str) -> Iterator[Match]:
        """As search_all, without what overlaps an earlier or longer match."""
        kept: Match | None = None
        for found in self.search_all(text):
            if kept is None or not is_overlap(kept, found):
                if kept is not None:
                    yield kept
                kept = found
            elif should_replace(kept, found):
                kept = found
        if kept is not None:
            yield kept

    def search_one(self, text: str) -> Match | None:
        """The first match, None when there is none."""
        return next(self.search_all(text), None)

    def search(self, text: str) -> Match | None:
        """As search_one."""
        return self.search_one(text)


automaton = KeywordMap()
EXCL_FLAG = False


def exclusion_start(line_no: int) -> bool:
    """Begins a part that stays as it is."""
    global EXCL_FLAG
    if EXCL_FLAG:
        LOGGER.warning("line %d: MUSIFY_EXCL_START inside a part that is excluded already", line_no)
    EXCL_FLAG = True
    return False


def exclusion_stop(line_no: int) -> bool:
    """Ends a part that stays as it is."""
    global EXCL_FLAG
    if not EXCL_FLAG:
        LOGGER.warning("line %d: MUSIFY_EXCL_STOP without MUSIFY_EXCL_START", line_no)
    EXCL_FLAG = False
    return False


def exclusion_line(line_no: int) -> bool:
    """Lets one line stay as it is."""
    if EXCL_FLAG:
        LOGGER.warning("line %d: MUSIFY_EXCL_LINE inside a part that is excluded already", line_no)
    return True


excl_pattern = KeywordMap()
excl_pattern.add("MUSIFY_EXCL_START", exclusion_start)
excl_pattern.add("MUSIFY_EXCL_STOP", exclusion_stop)
excl_pattern.add("MUSIFY_EXCL_LINE", exclusion_line)
excl_pattern.finalize()


def load_mapping(path: str | Path) -> dict[str, str]:
    """A JSON file with one object of names. Raises ValueError when it holds anything else."""
    table = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise ValueError(f"{path}: expected a JSON object that maps names to names")
    return table


def fill(keywords: KeywordMap, table: Mapping[str, str], backwards: bool = False) -> None:
    """Adds the names of a mapping; `backwards` from musa to cuda, where the first of several cuda names counts."""
    names = list(table.items())
    for cuda, musa in reversed(names) if backwards else names:
        keywords.add(*((musa, cuda) if backwards else (cuda, musa)))


def init_ac_automaton(args: Any) -> None:
    """Fills `automaton` anew. args: mapping (paths of JSON files), extra_mapping (dict), direction ("c2m" or "m2c")."""
    if args.direction not in ("c2m", "m2c"):
        raise ValueError(f'direction is "c2m" or "m2c", but got {args.direction!r}')
    automaton.__init__()  # type: ignore[misc]
    for path in args.mapping:
        fill(automaton, load_mapping(path), args.direction == "m2c")
    fill(automaton, getattr(args, "extra_mapping", None) or {}, args.direction == "m2c")
    automaton.finalize()


def is_word_char(char_str: str) -> bool:
    """Whether a character belongs to a name."""
    return char_str.isalnum() or char_str == "_"


def is_word_boundary(code: str, begin_idx: int, end_idx: int) -> bool:
    """Whether code[begin_idx:end_idx] is a whole word of a name: cuda in my_cuda_x and cudaMalloc, not in barracuda."""
    before, after = code[begin_idx - 1 : begin_idx] if begin_idx else "", code[end_idx : end_idx + 1]
    ends = not after.isalnum() or (after.isupper() and code[end_idx - 1].islower())
    return not before.isalnum() and ends


def replace_names(text: str, keywords: KeywordMap, whole_words: bool) -> str:
    """`text` with every keyword replaced by its value."""
    parts, last = [], 0
    for (name, begin), value in keywords.search_longest(text):
        end = begin + len(name)
        if not whole_words or is_word_boundary(text, begin, end):
            parts += [text[last:begin], value]
            last = end
    return "".join([*parts, text[last:]])


def transform_line(line: str, line_no: int) -> str:
    """One line with the names of `automaton` replaced, where they are whole words and the line isn't excluded."""
    for _, exclude in excl_pattern.search_all(line):
        if exclude(line_no):
            return line
    return line if EXCL_FLAG else replace_names(line, automaton, whole_words=True)


@contextlib.contextmanager
def writer(file_name: str | Path | None = None) -> Iterator[TextIO]:
    """A file to write to, stdout without a name."""
    if file_name is None:
        yield sys.stdout
        return
    with open(file_name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        yield file


def transform_file(path: str, args: Any) -> None:
    """Transforms a file. args.output_method: "inplace", "create" (writes path + ".mt") or "terminal" (prints)."""
    global EXCL_FLAG
    if args.output_method not in ("inplace", "create", "terminal"):
        raise ValueError(f'output_method is "inplace", "create" or "terminal", but got {args.output_method!r}')
    EXCL_FLAG = False
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as source:
        lines = source.readlines()
    target = None if args.output_method == "terminal" else f"{path}.mt"
    with writer(target) as out:
        for number, line in enumerate(lines, 1):
            out.write(transform_line(line, number))
    if args.output_method == "inplace" and target is not None:
        os.replace(target, path)
    if EXCL_FLAG:
        LOGGER.warning("%s: MUSIFY_EXCL_START is never ended", path)
        EXCL_FLAG = False
