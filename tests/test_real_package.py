"""Where the real torch_musa is installed as well, torch_musa_sim stands aside, whichever came last."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMPAT = ROOT / "torch_musa_sim" / "compat" / "__init__.py"

THEIRS = """
import torch

def is_available(): return True
def device_count(): return 1
def current_device(): return 0

def _autoload():
    import sys
    torch.utils.rename_privateuse1_backend("musa")
    torch._register_device_module("musa", sys.modules[__name__])
"""
ENTRY_POINTS = "[torch.backends]\ntorch_musa = torch_musa:_autoload\n"


def install(site: Path, name: str, version: str, files: dict[str, str], entry_points: str = "") -> None:
    """As pip does it: files, metadata and a RECORD with their digests; what was there is overwritten."""
    info = f"{name}-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = []
    for path, text in {**files, **metadata}.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record.append(f"{path},sha256={digest},{len(text)}")
    (site / info / "RECORD").write_text("\n".join([*record, f"{info}/RECORD,,", ""]))


def install_theirs(site: Path) -> None:
    install(site, "torch_musa", "2.7.1", {"torch_musa/__init__.py": THEIRS, "torch_musa/_kernels.py": ""}, ENTRY_POINTS)


def install_ours(site: Path) -> None:
    entry = "[torch.backends]\ntorch_musa_sim = torch_musa_sim._autoload:autoload\n"
    install(site, "torch_musa_sim", "0.1.0", {"torch_musa/__init__.py": COMPAT.read_text()}, entry)
    if not (site / "torch_musa_sim").exists():
        (site / "torch_musa_sim").symlink_to(ROOT / "torch_musa_sim")


def run(code: str, site: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(site), **environment},
    )


IMPORTS = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
print("warnings:", len([w for w in caught if "torch_musa_sim stands aside" in str(w.message)]), len(caught))
print(caught[0].message)
print("sum:", torch.ones(2).sum().item(), hasattr(torch, "musa") and hasattr(torch.musa, "op_statistics"))
for name in ("torch_musa_sim", "torch_musa"):
    try:
        module = __import__(name)
    except ImportError as error:
        print(name, "raised:", error)
    else:
        print(name, "is theirs:", hasattr(module, "_autoload"))
"""


@pytest.mark.parametrize("last", ["theirs", "ours"])
def test_the_hook_warns_once_and_stands_aside_in_both_orders(tmp_path, last):
    for step in [install_ours, install_theirs] if last == "theirs" else [install_theirs, install_ours]:
        step(tmp_path)
    done = run(IMPORTS, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "warnings: 1 1"
    assert lines[2] == "sum: 2.0 False"  # torch works, the device isn't ours
    assert lines[3].startswith("torch_musa_sim raised: torch_musa 2.7.1 is installed")
    assert lines[3].endswith(".")
    if last == "theirs":
        assert lines[4] == "torch_musa is theirs: True"
        assert "`pip uninstall torch_musa_sim` for real cards" in lines[1]
        assert "`pip uninstall torch_musa, then install torch_musa_sim again` for simulated ones" in lines[1]
    else:
        assert lines[4].startswith("torch_musa raised: torch_musa 2.7.1 is installed")
        assert "pip install --force-reinstall --no-deps torch_musa==2.7.1` for real cards" in lines[1]


def test_import_torch_musa_sim_raises_before_torch_is_touched(tmp_path):
    install_theirs(tmp_path)
    code = """
    import sys
    try:
        import torch_musa_sim
    except ImportError as error:
        print(error)
    print("torch" in sys.modules)
    """
    done = run(code, tmp_path)
    assert done.stdout.splitlines()[0].startswith("torch_musa 2.7.1 is installed")
    assert done.stdout.splitlines()[1] == "False"


def test_an_editable_install_of_theirs_is_found_by_its_metadata(tmp_path):
    source = tmp_path / "checkout"
    (source / "torch_musa").mkdir(parents=True)
    (source / "torch_musa" / "__init__.py").write_text(THEIRS)
    info = tmp_path / "torch_musa-2.9.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.9.1\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{source}", "dir_info": {"editable": True}}))
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n__editable__.torch_musa.pth,,\n")
    (tmp_path / "__editable__.torch_musa.pth").write_text(str(source))
    done = run("import torch_musa_sim", tmp_path)
    assert "ImportError: torch_musa 2.9.1 is installed" in done.stderr


def test_an_old_style_editable_install_is_found_by_its_egg_info(tmp_path):
    info = tmp_path / "torch_musa.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: torch-musa\nVersion: 2.1.0\n")
    assert "ImportError: torch_musa 2.1.0 is installed" in run("import torch_musa_sim", tmp_path).stderr


def test_metadata_left_behind_by_an_uninstall_is_no_package(tmp_path):
    install_theirs(tmp_path)
    for file in ("__init__.py", "_kernels.py"):
        (tmp_path / "torch_musa" / file).unlink()
    (tmp_path / "torch_musa").rmdir()
    (tmp_path / "torch_musa-2.7.1.dist-info" / "entry_points.txt").unlink()
    code = "import torch, torch_musa; print(torch.musa.device_count(), torch_musa.__version__)"
    done = run(code, tmp_path, TORCH_MUSA_SIM_CARDS="3")
    assert done.stdout == "3 2.13.0\n", done.stderr


def test_our_own_package_is_not_taken_for_theirs(tmp_path):
    install_ours(tmp_path)
    done = run("import torch, torch_musa; print(torch_musa.device_count())", tmp_path, TORCH_MUSA_SIM_CARDS="2")
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_the_build_says_what_to_do(tmp_path):
    install_theirs(tmp_path)
    done = subprocess.run(
        [sys.executable, ROOT / "setup.py", "-q", "build_ext", "--build-lib", tmp_path / "out"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "torch_musa 2.7.1 is installed" in done.stderr
    assert "pip uninstall torch_musa" in done.stderr
