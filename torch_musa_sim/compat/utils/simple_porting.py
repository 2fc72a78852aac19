"""A copy of a folder of CUDA sources with musa's names.

python -m torch_musa.utils.simple_porting --cuda-dir-path csrc/cuda
"""

import argparse
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .musify_text import KeywordMap, fill, load_mapping, replace_names

EXT_REPLACED_MAPPING = {"cuh": "muh", "cu": "mu"}
_TEXT_SUFFIXES = (".c", ".cc", ".cmake", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".py", ".txt")


def read_json(json_file_path: str) -> dict[str, Any]:
    """A mapping of names from a JSON file."""
    return load_mapping(json_file_path)


class SimplePorting:
    """Converts <folder> into <folder>_musa, whose former contents are removed.

    ignore_dir_paths: folders below it to leave out. mapping_rule: texts to replace, also inside longer names, before
    those of the default mapping. drop_default_mapping: without the latter. mapping_dir_path: a folder of JSON files
    with further rules. Without cuda_dir_path the command line is read.
    """

    def __init__(
        self,
        cuda_dir_path: str | None = None,
        ignore_dir_paths: Sequence[str] | None = None,
        mapping_rule: Mapping[str, str] | None = None,
        drop_default_mapping: bool = False,
        mapping_dir_path: str | None = None,
    ) -> None:
        if cuda_dir_path is None:
            given = _parse_arguments()
            cuda_dir_path, ignore_dir_paths = given.cuda_dir_path, given.ignore_dir_paths
            mapping_rule, mapping_dir_path = given.mapping_rule, given.mapping_dir_path
            drop_default_mapping = given.drop_default_mapping
        if not os.path.isdir(cuda_dir_path):
            raise FileNotFoundError(f"{cuda_dir_path} is not a folder")
        self.cuda_dir_path = os.path.normpath(cuda_dir_path)
        self.musa_dir_path = f"{self.cuda_dir_path}_musa"
        self.ignore_dir_paths = list(ignore_dir_paths or [])
        self.mapping_rule = dict(mapping_rule or {})
        self.drop_default_mapping = drop_default_mapping
        self.mapping_dir_path = mapping_dir_path
        self.names = KeywordMap()
        self.load_replaced_mapping()
        self.process_ignore_dir_paths()

    def load_replaced_mapping(self) -> None:
        """Puts the rules together; a rule given here wins over one from a folder, that over a default one."""
        files = sorted(Path(self.mapping_dir_path).rglob("*.json")) if self.mapping_dir_path else []
        if not self.drop_default_mapping:
            files.insert(0, Path(__file__).parent / "mapping" / "general.json")
        for file in files:
            fill(self.names, load_mapping(file))
        fill(self.names, self.mapping_rule)
        self.names.finalize()

    def process_ignore_dir_paths(self) -> None:
        """Makes the folders to leave out absolute; they may be given from here or from inside the folder."""
        inside = [os.path.join(self.cuda_dir_path, path) for path in self.ignore_dir_paths]
        paths = [
            one if os.path.exists(one) else other for one, other in zip(inside, self.ignore_dir_paths, strict=True)
        ]
        self.ignore_dir_paths = [os.path.abspath(path) for path in paths]

    def change_filename(self, name: str) -> str:
        """musa's name of a file or folder: "cuda_utils.cuh" becomes "musa_utils.muh"."""
        stem, dot, suffix = name.rpartition(".")
        if dot and suffix in EXT_REPLACED_MAPPING:
            name = f"{stem}.{EXT_REPLACED_MAPPING[suffix]}"
        return name.replace("cuda", "musa").replace("CUDA", "MUSA")

    def modify_file(self, cuda_filepath: str, musa_filepath: str) -> None:
        """Converts one file; what isn't source text is copied as it is."""
        if Path(cuda_filepath).suffix not in _TEXT_SUFFIXES:
            shutil.copy2(cuda_filepath, musa_filepath)
            return
        with open(cuda_filepath, encoding="utf-8", errors="surrogateescape", newline="") as source:
            text = source.read()
        for extension, replaced in EXT_REPLACED_MAPPING.items():  # #include "x.cuh"
            text = text.replace(f'.{extension}"', f'.{replaced}"').replace(f".{extension}>", f".{replaced}>")
        with open(musa_filepath, "w", encoding="utf-8", errors="surrogateescape", newline="") as target:
            target.write(replace_names(text, self.names, whole_words=False))

    def run(self) -> None:
        """Converts the folder."""
        shutil.rmtree(self.musa_dir_path, ignore_errors=True)
        for folder, folders, files in os.walk(self.cuda_dir_path):
            folders[:] = [
                one for one in folders if os.path.abspath(os.path.join(folder, one)) not in self.ignore_dir_paths
            ]
            parts = Path(folder).relative_to(self.cuda_dir_path).parts
            target = os.path.join(self.musa_dir_path, *map(self.change_filename, parts))
            os.makedirs(target, exist_ok=True)
            for file in files:
                self.modify_file(os.path.join(folder, file), os.path.join(target, self.change_filename(file)))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Copies a folder of CUDA sources with musa's names.")
    parser.add_argument("--cuda-dir-path", required=True, help="the folder to convert; the result is <folder>_musa")
    parser.add_argument("--ignore-dir-paths", type=json.loads, default=[], help="JSON list of folders to leave out")
    parser.add_argument("--mapping-rule", type=json.loads, default={}, help="JSON object of texts to replace")
    parser.add_argument("--drop-default-mapping", action="store_true", help="use only the rules given here")
    parser.add_argument("--mapping-dir-path", help="a folder of JSON files with rules")
    return parser.parse_args()


if __name__ == "__main__":
    SimplePorting().run()
