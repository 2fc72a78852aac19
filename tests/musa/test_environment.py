"""A bad environment never breaks `import torch`; the first use of the device says in one error what is accepted."""

import os
import subprocess
import sys
import textwrap
import uuid

import pytest

FIRST_USE = """
    import torch
    print("available", torch.musa.is_available(), torch.musa.device_count())
    try:
        print("sum", torch.ones(2, device="musa").sum().item())
    except Exception as error:
        print("error", str(error).replace("\\n", " "))
"""

# variable, value, what the error must say
REFUSED = [
    ("MUSA_VISIBLE_DEVICES", "0,0", ["names card 0 twice", "each once"]),
    ("MUSA_VISIBLE_DEVICES", "0,x", ["'x'", "card indices"]),
    ("TORCH_MUSA_SIM_CARD", "S9000", ["S9000", "S4000, S5000, S80"]),
    ("TORCH_MUSA_SIM_CARDS", "0", ["1 .. 512"]),
    ("TORCH_MUSA_SIM_CARDS", "eight", ["1 .. 512"]),
    ("TORCH_MUSA_SIM_MEMORY", "-5GiB", ["2MiB .. 1TiB"]),
    ("TORCH_MUSA_SIM_MEMORY", "9999TiB", ["2MiB .. 1TiB"]),
    ("TORCH_MUSA_SIM_STRICT", "maybe", ["0 | 1"]),
    ("TORCH_MUSA_SIM_NATIVE", "?", ["names of operators"]),
    ("TORCH_MUSA_SIM_HOST_MEMORY", "little", ["overcommit"]),
    ("PYTORCH_MUSA_ALLOC_CONF", "nonsense:1", ["nonsense", "garbage_collection_threshold"]),
]


def run(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, "TORCH_MUSA_SIM_SCOPE": f"test.{uuid.uuid4().hex[:12]}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.parametrize(("variable", "value", "says"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_bad_value_is_refused_at_first_use(variable, value, says):
    result = run(FIRST_USE, **{variable: value})
    assert "sum" not in result.stdout
    error = result.stdout[result.stdout.index("error") :]
    assert variable in error
    for words in says:
        assert words in error


def test_no_visible_card():
    result = run(FIRST_USE, MUSA_VISIBLE_DEVICES="")
    assert "available False 0" in result.stdout
    assert "MUSA_VISIBLE_DEVICES" in result.stdout


def test_an_index_out_of_range_ends_the_list_with_one_warning():
    result = run(FIRST_USE, MUSA_VISIBLE_DEVICES="2,99,1")
    assert "available True 1" in result.stdout
    assert "sum 2.0" in result.stdout
    assert result.stderr.count("there is no card 99") == 1


def test_the_order_of_visible_cards_counts():
    result = run("import torch; print(torch.musa.device_count())", MUSA_VISIBLE_DEVICES="3,1,0")
    assert result.stdout.split() == ["3"]


@pytest.mark.parametrize("index", [8, 100, 127])
def test_device_index_out_of_range(index):
    result = run(
        f"""
        import torch
        for use in (lambda: torch.ones(1, device="musa:{index}"), lambda: torch.musa.set_device({index})):
            try:
                use()
            except RuntimeError as error:
                print(error)
        """
    )
    assert result.stdout.count(f"{index}") >= 2
    assert result.stdout.count("visible cards are 0 .. 7") == 2


def test_more_cards_than_torch_can_count_are_clamped():
    assert "available True 127" in run(FIRST_USE, TORCH_MUSA_SIM_CARDS="512").stdout
