"""Every name that code written for torch_musa 2.7.1 can use is there."""

from collections import Counter
from pathlib import Path

import pytest
from name_table import SCOPES, all_names, is_there, to_come

NOW = [name for name in all_names() if name.scope != "collectives"]
MODULES = sorted({name.module for name in NOW})


def test_the_table_is_whole():
    names = all_names()
    assert len(names) >= 1216
    assert len({(name.module, name.name) for name in names}) == len(names)
    assert {name.scope for name in names} == set(SCOPES)
    assert Counter(name.scope for name in names)["no-meaning"] <= 15


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_there(module):
    missing = [str(name) for name in NOW if name.module == module and str(name) not in to_come() and not is_there(name)]
    assert not missing, "missing:\n" + "\n".join(missing)


def test_what_is_still_to_come_is_in_the_table():
    assert to_come() <= {str(name) for name in NOW}


def test_names_without_meaning_are_documented():
    text = (Path(__file__).parents[2] / "docs" / "compat.md").read_text()
    undocumented = [
        str(name)
        for name in all_names()
        if name.scope == "no-meaning" and f"`{name.name}`" not in text and f".{name.name}`" not in text
    ]
    assert not undocumented
