"""Makes torch-2.7.1_ops.tsv from a wheel of torch 2.7.1, whose code generator and operator definitions are inside.

    pip download torch==2.7.1 --no-deps --only-binary=:all: --platform macosx_11_0_arm64 --python-version 3.11 -d DIR
    python torch_musa_sim/data/make_torch_ops.py DIR/torch-2.7.1-*.whl

Any platform's wheel gives the same table (this one is the smallest); nothing of it is installed or loaded but the
pure-Python package torchgen.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

TABLE = Path(__file__).resolve().parent / "torch-2.7.1_ops.tsv"
HEADER = """\
# Operators of namespace aten in torch 2.7.1, and what a backend without a kernel of its own gets for each.
# Source: torchgen/packaged/ATen/native/native_functions.yaml in the wheel of torch 2.7.1 (BSD-3-Clause); names and
# classes only. Made by make_torch_ops.py. implicit, explicit: a composite kernel. structured: a kernel that calls the
# operator in the third column. kernel: nothing, a backend must bring its own.
op\tclass\tby
"""


def rows(native: Path) -> list[str]:
    from torchgen.gen import parse_native_yaml

    table = []
    for function in parse_native_yaml(
        str(native / "native_functions.yaml"), str(native / "tags.yaml")
    ).native_functions:
        kind, by = "kernel", ""
        if function.structured_delegate is not None:
            kind, by = "structured", str(function.structured_delegate)
        elif function.has_composite_implicit_autograd_kernel:
            kind = "implicit"
        elif (
            function.has_composite_explicit_autograd_kernel
            or function.has_composite_explicit_autograd_non_functional_kernel
        ):
            kind = "explicit"
        table.append(f"{function.func.name}\t{kind}\t{by}")
    return sorted(table)


def main() -> None:
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(sys.argv[1]) as wheel:
        wheel.extractall(place, [name for name in wheel.namelist() if name.startswith("torchgen/")])
        sys.path.insert(0, place)
        lines = rows(Path(place) / "torchgen" / "packaged" / "ATen" / "native")
    TABLE.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{len(lines)} operators in {TABLE.name}")


if __name__ == "__main__":
    main()
