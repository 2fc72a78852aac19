"""A folder of CUDA sources converted where it stands, or into files beside the old ones."""

import fnmatch
import logging
import pathlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from . import musify_text
from .musify_text import load_mapping

EXT_REPLACED_MAPPING = {"cuh": "muh", "cu": "mu"}
SEFL_PATH = str(pathlib.Path(__file__).parent)
SOURCE_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".mu", ".muh", ".py")


def read_json(json_file_path: str) -> dict[str, Any]:
    """A mapping of names from a JSON file."""
    return load_mapping(json_file_path)


class SimplePortingViaMusify:
    """Replaces names in every source file below a folder.

    ignore_patterns: shell patterns of paths (below the folder) to leave alone. extra_mapping: names added to the
    mapping; drop_default_mapping: without the mapping that comes with this package; mapping: paths of further JSON
    files. output_method and direction: see musify_text. In place, .cu and .cuh files become .mu and .muh.
    """

    def __init__(
        self,
        cuda_dir_path: str,
        ignore_patterns: Sequence[str],
        extra_mapping: Mapping[str, str] | None = None,
        drop_default_mapping: bool = False,
        mapping: Sequence[str] | None = None,
        output_method: str = "inplace",
        direction: str = "c2m",
        log_level: str = "INFO",
    ) -> None:
        self.folder = pathlib.Path(cuda_dir_path)
        if not self.folder.is_dir():
            raise FileNotFoundError(f"{cuda_dir_path} is not a folder")
        self.ignore_patterns = list(ignore_patterns or [])
        default = [] if drop_default_mapping else [f"{SEFL_PATH}/mapping/general.json"]
        self.args = SimpleNamespace(
            mapping=[*default, *(mapping or [])],
            extra_mapping=dict(extra_mapping or {}),
            output_method=output_method,
            direction=direction,
        )
        logging.getLogger("torch_musa").setLevel(log_level)

    def run(self) -> None:
        """Converts the files."""
        musify_text.init_ac_automaton(self.args)
        renamed = EXT_REPLACED_MAPPING
        if self.args.direction == "m2c":
            renamed = {musa: cuda for cuda, musa in EXT_REPLACED_MAPPING.items()}
        for path in sorted(self.folder.rglob("*")):
            inside = path.relative_to(self.folder).as_posix()
            ignored = any(fnmatch.fnmatch(inside, pattern) for pattern in self.ignore_patterns)
            if not path.is_file() or path.suffix not in SOURCE_SUFFIXES or ignored:
                continue
            musify_text.transform_file(str(path), self.args)
            if self.args.output_method == "inplace" and path.suffix[1:] in renamed:
                path.rename(path.with_suffix(f".{renamed[path.suffix[1:]]}"))
