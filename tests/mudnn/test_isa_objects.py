"""Code for one instruction set stays in its object files.

A function that two object files both contain as a weak symbol is kept once by the linker, from whichever comes first:
an inline function of the standard library compiled for AVX-512 could end up in code that runs on any CPU.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LEVELS = ["portable", "avx2", "avx512"]


def objects(target: str) -> list[Path]:
    """Object files of a CMake target in the build that was made last."""
    lists = sorted(ROOT.glob(f"build/**/objects_{target}.txt"), key=lambda path: path.stat().st_mtime)
    if not lists:
        pytest.skip(f"no build of {target} in this tree")
    return [lists[-1].parent / line for line in lists[-1].read_text().split()]


def symbols(path: Path) -> list[tuple[str, str]]:
    """(type letter, name) of what the object file defines for others."""
    lines = subprocess.run(
        ["nm", "--defined-only", "--extern-only", "--demangle", path], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [(parts[1], parts[2]) for parts in (line.split(maxsplit=2) for line in lines) if len(parts) == 3]


@pytest.mark.parametrize("level", LEVELS)
def test_kernels_of_a_level_define_only_their_tables(level: str) -> None:
    found = 0
    for path in objects(f"mudnn_{level}"):
        for kind, name in symbols(path):
            assert kind in "RD", f"{path.name} defines {name} ({kind}); put it into an unnamed namespace"
            assert name.endswith(f"_{level}"), f"{path.name} defines {name}"
            found += 1
    assert found > 0


@pytest.mark.parametrize("target", ["mudnn", "mudnn_portable"])
def test_other_code_has_no_instruction_beyond_the_baseline(target: str) -> None:
    for path in objects(target):
        text = subprocess.run(
            ["objdump", "--disassemble", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
        ).stdout
        beyond = re.findall(r"%[yz]mm\d+|\sv[a-z]+[dsb]\s.*%xmm", text)
        assert not beyond, f"{path.name}: {beyond[:3]}"


def test_the_search_finds_what_it_is_for() -> None:
    text = "".join(
        subprocess.run(["objdump", "--disassemble", path], capture_output=True, text=True, check=True).stdout
        for path in objects("mudnn_avx512")
    )
    assert "%zmm" in text
