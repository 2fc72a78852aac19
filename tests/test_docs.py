"""The documents say what is so."""

import re
from pathlib import Path

import pytest
import torch

from torch_musa_sim import _C

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_settings_table():
    rows = {}
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = tuple(cells[1:])
    expected = {
        setting["name"]: (
            setting["accepted"],
            f"`{setting['default']}`" if setting["default"] else "empty",
            setting["about"],
        )
        for setting in _C._settings()
    }
    assert rows == expected


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(document):
    text = document.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#]+)", prose) if "://" not in link]
    named = re.findall(r"`((?:csrc|tests|benchmarks|examples|torch_musa_sim)/[\w./*<>-]+)`", text)
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [name for name in named if "<" not in name and not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


def test_readme_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    name_and_memory, virtual_time = capsys.readouterr().out.splitlines()
    assert name_and_memory.startswith(torch.musa.get_device_name())
    assert float(virtual_time.split()[0]) > 0
