"""`musa-sim doctor` finds what is wrong and says how to mend it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import torch_musa_sim


def problems(done) -> str:
    content = json.loads(done.stdout)
    return "\n".join(f"{one['what']} -> {one['cure']}" for one in content["problems"])


def test_a_healthy_installation(musa_sim):
    done = musa_sim("doctor", TORCH_MUSA_SIM_CARDS="2", TORCH_MUSA_SIM_MEMORY="2GiB")
    text = done.stdout
    assert text.rstrip().endswith("Nothing is wrong.")
    assert "2 x MTT S5000 (simulated), 2 visible" in text
    assert "TORCH_MUSA_SIM_CARDS = 2   [default 8]" in text
    assert "TORCH_MUSA_SIM_STRICT = 0\n" in text
    assert f"torch_musa_sim  {torch_musa_sim.__version__} in " in text


def test_every_setting_is_listed_with_its_value(musa_sim):
    from torch_musa_sim import _C

    content = json.loads(musa_sim("doctor", "--json", MUSA_LAUNCH_BLOCKING="1").stdout)
    listed = {one["name"]: one for one in content["settings"]}
    assert set(listed) == {one["name"] for one in _C._settings()}
    assert listed["MUSA_LAUNCH_BLOCKING"]["value"] == "1"
    assert all(one["about"] and one["accepted"] for one in listed.values())


@pytest.mark.parametrize(
    ("environment", "what"),
    [
        ({"TORCH_MUSA_SIM_CARDS": "many"}, "TORCH_MUSA_SIM_CARDS=many is not accepted; accepted: 1 .. 512"),
        ({"TORCH_MUSA_SIM_CARD": "H100"}, "TORCH_MUSA_SIM_CARD=H100 is no known card model; accepted: S4000"),
        ({"TORCH_MUSA_SIM_CRADS": "2"}, "TORCH_MUSA_SIM_CRADS is not known and has no effect. -> Known are: MUSA_"),
        ({"MUSA_VISIBLE_DEVICES": ""}, "No card is visible: MUSA_VISIBLE_DEVICES=''"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "keeps `import torch` from making the device. -> Unset it"),
    ],
)
def test_a_bad_environment_is_a_problem_with_a_cure(environment, what, musa_sim):
    done = musa_sim("doctor", "--json", check=False, **environment)
    assert done.returncode == 1
    assert what in problems(done)
    assert "PROBLEM: " in musa_sim("doctor", check=False, **environment).stdout


def test_the_real_torch_musa_is_named(musa_sim, tmp_path):
    info = tmp_path / "torch_musa-2.7.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    done = musa_sim("doctor", "--json", check=False, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "torch_musa 2.7.1 is installed" in problems(done)
    assert "pip uninstall torch_musa_sim` for real cards" in problems(done)


def test_another_torch_is_named_even_where_it_cannot_be_imported(musa_sim, tmp_path):
    info = tmp_path / "torch-2.99.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('a broken torch')")
    done = musa_sim("doctor", "--json", check=False, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "installed is torch 2.99.0. -> Run: pip install 'torch==2.13.*'" in problems(done)


def test_a_device_that_fails_is_reported_with_the_reason(musa_sim, tmp_path):
    (tmp_path / "torch.py").write_text("raise OSError('libsomething.so is missing')")
    done = musa_sim("doctor", "--json", check=False, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "An addition on the device failed: OSError: libsomething.so is missing" in problems(done)


def test_libraries_that_were_never_built_are_named(tmp_path):
    package = tmp_path / "torch_musa_sim"
    shutil.copytree(os.path.dirname(torch_musa_sim.__file__), package, ignore=shutil.ignore_patterns("*.so*"))
    done = subprocess.run(
        [sys.executable, "-m", "torch_musa_sim.cli", "doctor", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert f"Missing in {package / 'lib'}: libmusart.so, libmtml.so.2, libtorch_musa_sim.so." in problems(done)
    assert "Build the package" in problems(done)


def test_a_small_shared_memory_folder_is_a_note(tmp_path, monkeypatch):
    from torch_musa_sim.cli import _checks

    findings = _checks.Findings()
    monkeypatch.setattr(_checks.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 64 << 20))
    assert _checks.check_shared_memory(findings, str(tmp_path)) == "0.1 GiB free"
    assert "has only 64 MiB left" in findings.notes[0]["what"]
    assert "--shm-size" in findings.notes[0]["cure"]
    missing = _checks.Findings()
    assert _checks.check_shared_memory(missing, str(tmp_path / "none")) == "not writable"
    assert missing.notes
