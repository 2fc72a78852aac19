"""Writes torch_musa_sim/data/cuda_dtypes.tsv: which dtypes CUDA accepts, operator by operator.

    python tests/ops/make_dtype_contract.py            # rewrites the table
    python tests/ops/make_dtype_contract.py --check    # exits 1 when the table is out of date

The source is torch's operator database as it would be on a large CUDA card. On a machine without one its CUDA lists
are too short, because the switches "compute capability at least x" are all false there; here they are forced true
before the database is imported, which is why this must run in a process of its own.

Columns: `op` and `variant` (names in the database), `aten` (the ATen name it stands for, empty where there is none),
`forward` and `backward` (dtypes accepted, comma separated), `deviation` (where the row differs from the database, why).
"""

import argparse
import os
import sys
from pathlib import Path

TABLE = Path(__file__).parents[2] / "torch_musa_sim" / "data" / "cuda_dtypes.tsv"
HEADER = ("op", "variant", "aten", "forward", "backward", "deviation")

# Order of the dtypes in a cell; a dtype that is not listed here stops the script rather than being dropped.
DTYPE_ORDER = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128"),
    *("int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    "complex32",
)
NOT_OFFERED = {
    "complex32": "half-precision complex numbers have no eager kernels here",
    "float8_e4m3fnuz": "the fnuz formats are AMD's; CUDA cards refuse them",
    "float8_e5m2fnuz": "the fnuz formats are AMD's; CUDA cards refuse them",
}
# Operators that need a kind of tensor the device refuses with one clear error.
REFUSED = dict.fromkeys(["sparse.mm.reduce", "sparse.sampled_addmm"], "sparse CSR tensors are not offered")
NO_CUDA_KERNEL = "CUDA has no kernel; musa runs the CPU's by default"


def force_capabilities() -> None:
    """Makes every "this card is new enough" switch of torch's test library true. Call before op_db is imported."""
    from torch.testing._internal import common_cuda

    for name in dir(common_cuda):
        newer = name.startswith("SM") and name.endswith("OrLater")
        if newer or name in {"PLATFORM_SUPPORTS_FLASH_ATTENTION", "PLATFORM_SUPPORTS_MEM_EFF_ATTENTION"}:
            setattr(common_cuda, name, True)


def cell(dtypes: set) -> str:
    names = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    unknown = names - set(DTYPE_ORDER)
    if unknown:
        raise SystemExit(f"dtypes {sorted(unknown)} have no place in DTYPE_ORDER of {__file__}: add them")
    return ",".join(name for name in DTYPE_ORDER if name in names and name not in NOT_OFFERED)


def rows() -> list[tuple[str, ...]]:
    """One row per entry of op_db, sorted by op and variant."""
    force_capabilities()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    found = []
    for op in op_db:
        forward = op.supported_dtypes("cuda")
        backward = op.supported_backward_dtypes("cuda")
        names = {str(dtype).removeprefix("torch.") for dtype in forward | backward}
        notes = [f"without {name}: {NOT_OFFERED[name]}" for name in DTYPE_ORDER if name in names & set(NOT_OFFERED)]
        if op.name.startswith("fft.") and not op.name.endswith("shift") and torch.float16 in forward:
            forward, backward = forward - {torch.float16}, backward - {torch.float16}
            notes.append(f"without float16: computed in complex32 on CUDA, and {NOT_OFFERED['complex32']}")
        if op.full_name in REFUSED:
            forward, backward, notes = set(), set(), [REFUSED[op.full_name]]
        elif not forward:
            notes.append(NO_CUDA_KERNEL)
        found.append(
            (op.name, op.variant_test_name, op.aten_name or "", cell(forward), cell(backward), "; ".join(notes))
        )
    return sorted(found)


def render() -> str:
    return "".join("\t".join(row) + "\n" for row in [HEADER, *rows()])


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the table of dtypes that CUDA accepts per operator.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the table is out of date")
    check = parser.parse_args().check
    wanted = render()
    if check:
        if TABLE.exists() and TABLE.read_text() == wanted:
            return 0
        print(f"{TABLE.name} is out of date: run python tests/ops/make_dtype_contract.py", file=sys.stderr)
        return 1
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(wanted)
    print(f"{TABLE.name}: {wanted.count(chr(10)) - 1} operators")
    return 0


if __name__ == "__main__":
    # The database must look the same whether or not this package is installed.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    sys.exit(main())
