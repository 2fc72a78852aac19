"""Who may call whom: includes of csrc/ and imports of the Python packages point one way."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Room -> rooms whose headers it may include, besides its own.
CXX_ROOMS = {
    "musart": set(),
    "mudnn": {"musart"},
    "mccl": {"musart"},
    "mtml": {"musart"},
    "backend": {"musart", "mudnn", "mccl"},
    "python": {"musart", "backend"},
}
CXX_WITHOUT_TORCH = {"musart", "mudnn", "mccl", "mtml"}
TORCH_INCLUDE = re.compile(r"(ATen|c10|torch|caffe2|pybind11)/")

# Room of torch_musa_sim -> rooms it may import, besides its own. What is missing here may import none of ours.
PYTHON_ROOMS = {
    "_autoload": {"_register", "_real_package"},
    "_real_package": set(),
    "_imports": set(),
    "_register": {"_C", "_build_info", "_real_package", "musa", "distributed", "compile", "ao", "adapters"},
    "musa": {"_C"},
    "distributed": {"_C", "musa"},
    "inference": set(),
    "serve": {"inference"},
    "simulate": {"_C", "musa"},
    "compile": {"_C", "_imports", "musa"},
    "adapters": {"_C", "_imports"},
    "ao": set(),
    "compat": {"musa", "distributed", "compile", "ao", "_real_package", "collect_env"},
}
MAY_IMPORT_ALL = {"cli", "__init__", "collect_env"}


def included(text: str) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', text, re.MULTILINE)


def cxx_violations(room: str, text: str) -> list[str]:
    """Includes in a file of csrc/<room> that point the wrong way."""
    wrong = []
    for header in included(text):
        target = header.split("/")[0]
        if target in CXX_ROOMS and target != room and target not in CXX_ROOMS[room]:
            wrong.append(f"{room} includes {header}")
        if room in CXX_WITHOUT_TORCH and TORCH_INCLUDE.match(header):
            wrong.append(f"{room} includes torch's {header}")
    return wrong


def imported(text: str, package: str) -> list[str]:
    """Absolute names of the modules that a file of `package` imports, at top level or inside functions."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names


def python_violations(room: str, text: str, package: str = "torch_musa_sim") -> list[str]:
    """Imports in a file of torch_musa_sim/<room> that point the wrong way."""
    if room in MAY_IMPORT_ALL:
        return []
    allowed = PYTHON_ROOMS.get(room, set()) | {room}
    wrong = []
    for name in imported(text, package):
        parts = name.split(".")
        if parts[0] == "torch_musa" or (parts[0] == "torch_musa_sim" and (parts + [""])[1] not in allowed):
            wrong.append(f"{room} imports {name}")
    return wrong


def model_zoo_violations(text: str) -> list[str]:
    wrong = [f"model_zoo imports {name}" for name in imported(text, "model_zoo") if name.startswith("torch_musa")]
    return wrong + (["model_zoo says 'musa'"] if "musa" in text.lower() else [])


def test_includes_point_downward():
    wrong, seen = [], 0
    for file in sorted((ROOT / "csrc").rglob("*")):
        if file.suffix in {".h", ".cpp", ".inc"}:
            room = file.relative_to(ROOT / "csrc").parts[0]
            assert room in CXX_ROOMS, f"csrc/{room} is a room that no rule knows"
            seen += 1
            wrong += [f"{file.relative_to(ROOT)}: {what}" for what in cxx_violations(room, file.read_text())]
    assert seen > 10
    assert not wrong, "\n".join(wrong)


def test_imports_point_downward():
    wrong, seen = [], 0
    for file in sorted((ROOT / "torch_musa_sim").rglob("*.py")):
        inside = file.relative_to(ROOT / "torch_musa_sim")
        room = inside.parts[0].removesuffix(".py")
        package = ".".join(["torch_musa_sim", *inside.parts[:-1]])
        seen += 1
        wrong += [f"{file.relative_to(ROOT)}: {what}" for what in python_violations(room, file.read_text(), package)]
    assert seen > 5
    assert not wrong, "\n".join(wrong)


def test_model_zoo_knows_no_device():
    files = sorted((ROOT / "model_zoo").rglob("*.py"))
    assert files
    wrong = [f"{file.name}: {what}" for file in files for what in model_zoo_violations(file.read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("musart", '#include "backend/storage.h"'),
        ("mudnn", '#include "mccl/ring.h"'),
        ("mccl", '  #  include "mudnn/gemm.h"'),
        ("mtml", '#include "backend/register.h"'),
        ("musart", "#include <c10/core/Device.h>"),
        ("mudnn", "#include <ATen/core/Tensor.h>"),
        ("backend", '#include "python/bindings.h"'),
        ("python", '#include "mudnn/gemm.h"'),
    ],
)
def test_planted_include_is_caught(room, line):
    assert cxx_violations(room, f"#include <vector>\n{line}\n")


@pytest.mark.parametrize(
    ("room", "package", "line"),
    [
        ("musa", "torch_musa_sim.musa", "from torch_musa_sim import distributed"),
        ("musa", "torch_musa_sim.musa", "from ..simulate import cards"),
        ("musa", "torch_musa_sim.musa", "def f():\n    import torch_musa_sim.cli"),
        ("inference", "torch_musa_sim.inference", "from torch_musa_sim import _C"),
        ("inference", "torch_musa_sim.inference", "import torch_musa_sim"),
        ("serve", "torch_musa_sim.serve", "from torch_musa_sim.musa import memory"),
        ("compat", "torch_musa_sim.compat", "import torch_musa_sim._register"),
        ("distributed", "torch_musa_sim.distributed", "import torch_musa"),
    ],
)
def test_planted_import_is_caught(room, package, line):
    assert python_violations(room, f"import torch\n{line}\n", package)


@pytest.mark.parametrize("text", ["import torch_musa_sim\n", "x = x.to('musa')\n", "# MUSA\n"])
def test_planted_word_in_model_zoo_is_caught(text):
    assert model_zoo_violations(text)


def test_allowed_directions_pass():
    assert not cxx_violations("backend", '#include "musart/musart.h"\n#include <ATen/core/Tensor.h>\n')
    assert not cxx_violations("python", '#include "backend/register.h"\n#include "musart/musart_sim.h"\n')
    assert not python_violations("serve", "from torch_musa_sim.inference import engine\nimport torch\n")
    assert not python_violations("musa", "from .streams import Stream\n", "torch_musa_sim.musa")
    assert not model_zoo_violations("import torch\n")
