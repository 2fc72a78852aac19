"""Python scripts converted from cuda to musa where they stand (the command `musa-converter`)."""

import logging
import os
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch

try:
    import libcst as cst
except ImportError as error:
    raise ImportError("musa_converter needs libcst: pip install 'torch_musa_sim[port]'") from error

LOG_FORMAT = "%(asctime)s - %(levelname)s - %(message)s"


def string2cst_name(name: str) -> "cst.Name":
    """The syntax node of a name."""
    return cst.Name(name)


def string2cst_attribute(attr: str) -> "cst.Attribute":
    """The syntax node of a dotted name; ValueError for one without a dot."""
    first, *others = attr.split(".")
    if not others:
        raise ValueError(f"{attr!r} has no dot, so it isn't an attribute")
    node: Any = cst.Name(first)
    for other in others:
        node = cst.Attribute(node, cst.Name(other))
    return node


class _Rules(NamedTuple):
    NameAndCommentAndSimpleString: dict[str, str]  # texts replaced in names, comments and strings
    ImportFrom: dict[str, str]  # modules replaced in `from ... import`
    Attribute: dict[str, str]  # dotted names replaced in imports


MAPPING_RULES = _Rules(
    NameAndCommentAndSimpleString={"cuda": "musa", "CUDA": "MUSA", "nccl": "mccl", "NCCL": "MCCL", "nvcc": "mcc"},
    ImportFrom={"torch.utils.cpp_extension": "torch_musa.utils.musa_extension"},
    Attribute={"torch.cuda": "torch_musa", "torch.musa": "torch_musa"},
)


def _dotted(node: Any) -> str:
    if isinstance(node, cst.Name):
        return str(node.value)
    return f"{_dotted(node.value)}.{node.attr.value}" if isinstance(node, cst.Attribute) else ""


class MUSAReplacementTransformer(cst.CSTTransformer):
    """Applies MAPPING_RULES to a syntax tree; everything else, spaces and comments too, stays."""

    def __init__(self) -> None:
        super().__init__()
        self.in_import = False

    def leave_NameOrCommentOrSimpleString(self, original_node: Any, updated_node: Any) -> Any:
        text = updated_node.value
        for cuda, musa in MAPPING_RULES.NameAndCommentAndSimpleString.items():
            text = text.replace(cuda, musa)
        return updated_node.with_changes(value=text)

    def leave_Name(self, original_node: "cst.Name", updated_node: "cst.Name") -> "cst.Name":
        return self.leave_NameOrCommentOrSimpleString(original_node, updated_node)

    def leave_Comment(self, original_node: "cst.Comment", updated_node: "cst.Comment") -> "cst.Comment":
        return self.leave_NameOrCommentOrSimpleString(original_node, updated_node)

    def leave_SimpleString(
        self, original_node: "cst.SimpleString", updated_node: "cst.SimpleString"
    ) -> "cst.SimpleString":
        return self.leave_NameOrCommentOrSimpleString(original_node, updated_node)

    def leave_FormattedStringText(
        self, original_node: "cst.FormattedStringText", updated_node: "cst.FormattedStringText"
    ) -> "cst.FormattedStringText":
        return self.leave_NameOrCommentOrSimpleString(original_node, updated_node)

    def visit_Import(self, node: "cst.Import") -> bool:
        self.in_import = True
        return True

    def visit_ImportFrom(self, node: "cst.ImportFrom") -> bool:
        self.in_import = True
        return True

    def leave_Import(self, original_node: "cst.Import", updated_node: "cst.Import") -> "cst.Import":
        self.in_import = False
        return updated_node

    def leave_ImportFrom(self, original_node: "cst.ImportFrom", updated_node: "cst.ImportFrom") -> "cst.ImportFrom":
        self.in_import = False
        replaced = MAPPING_RULES.ImportFrom.get(_dotted(original_node.module))
        return updated_node.with_changes(module=string2cst_attribute(replaced)) if replaced else updated_node

    def leave_Attribute(self, original_node: "cst.Attribute", updated_node: "cst.Attribute") -> Any:
        # Only in imports: elsewhere torch.musa is there, and `torch` may be any object.
        replaced = MAPPING_RULES.Attribute.get(_dotted(updated_node)) if self.in_import else None
        return string2cst_name(replaced) if replaced else updated_node


class BaseMUSAConverter:
    """Finds the files. args: root_path (file or folder), launch_path (or None), excluded_path (list of files)."""

    def __init__(self, args: Namespace) -> None:
        self.root_path, self.launch_path = args.root_path, args.launch_path
        missing = [path for path in [args.root_path, *args.excluded_path] if not os.path.exists(path)]
        if missing:
            raise FileNotFoundError(f"no such file or folder: {', '.join(missing)}")
        self.excluded_path = [os.path.abspath(path) for path in args.excluded_path]

    def is_legal_file(self, path: str) -> bool:
        """Whether the file (an absolute path) is to be converted: Python, and not excluded."""
        return path.endswith(".py") and path not in self.excluded_path

    def setup_files(self) -> list[str]:
        """Absolute paths of the files to convert."""
        root = Path(self.root_path).absolute()
        files = [root] if root.is_file() else sorted(root.rglob("*"))
        return [str(path) for path in files if path.is_file() and self.is_legal_file(str(path))]

    def run(self) -> None:
        """To be defined by a converter."""
        raise NotImplementedError(f"{type(self).__name__} doesn't define run()")


class AdvancedMUSAConverter(BaseMUSAConverter):
    """Converts the files by their syntax trees."""

    def collect_unsupported_torch_ops(self) -> dict[str, list[str]]:
        """File -> names of torch.ops operators in it that have no kernel for musa."""
        found: dict[str, list[str]] = {}
        for file in self.setup_files():
            for namespace, name in re.findall(r"torch\.ops\.(\w+)\.(\w+)", Path(file).read_text(encoding="utf-8")):
                packet = getattr(getattr(torch.ops, namespace), name, None)
                known = packet is not None and any(
                    torch._C._dispatch_has_computed_kernel_for_dispatch_key(getattr(packet, o)._name, "PrivateUse1")
                    for o in packet.overloads()
                )
                if not known:
                    found.setdefault(file, []).append(f"{namespace}.{name}")
        return found

    def convert_file(self, file: str) -> None:
        """Converts one file in place; a file that doesn't parse raises SyntaxError and stays as it is."""
        source = Path(file).read_text(encoding="utf-8")
        try:
            tree = cst.parse_module(source)
        except cst.ParserSyntaxError as error:
            raise SyntaxError(f"{file} isn't valid Python: {error}") from None
        Path(file).write_text(tree.visit(MUSAReplacementTransformer()).code, encoding="utf-8")

    def add_torch_musa_into_launch_script(self, file: str) -> None:
        """Puts `import torch_musa` in front of the script, behind its docstring and __future__ imports."""
        tree = cst.parse_module(Path(file).read_text(encoding="utf-8"))
        if any("import torch_musa" in tree.code_for_node(line).splitlines() for line in tree.body):
            return
        place = 0
        for position, line in enumerate(tree.body):
            text = tree.code_for_node(line).strip()
            if text.startswith(("'", '"', "from __future__")):
                place = position + 1
        line = cst.parse_statement("import torch_musa\n")
        body = [*tree.body[:place], line, *tree.body[place:]]
        Path(file).write_text(tree.with_changes(body=body).code, encoding="utf-8")

    def run(self) -> None:
        """Converts all files, then the launch script."""
        files = self.setup_files()
        for file in files:
            self.convert_file(file)
        if self.launch_path:
            self.add_torch_musa_into_launch_script(self.launch_path)
        logging.info("converted %d files below %s", len(files), self.root_path)


def parse_args() -> Namespace:
    """The command line."""
    parser = ArgumentParser("musa-converter", description="Converts Python scripts from cuda to musa in place.")
    parser.add_argument("-r", "--root_path", required=True, help="a script, or a folder of scripts")
    parser.add_argument("-l", "--launch_path", help="the script that is started: it gets `import torch_musa`")
    parser.add_argument("-e", "--excluded_path", nargs="*", default=[], help="files to leave alone")
    return parser.parse_args()


def main() -> None:
    """The command `musa-converter`."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    AdvancedMUSAConverter(parse_args()).run()


if __name__ == "__main__":
    main()
