"""PYTORCH_MUSA_ALLOC_CONF and PYTORCH_ALLOC_CONF."""

from __future__ import annotations

import pytest
from conftest import RunScript

TENSOR = """
import torch
MIB = 1 << 20
def tensor(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device="musa")
"""


def test_above_the_threshold_unused_segments_are_collected_oldest_first(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
sizes = [30, 40, 50]
pieces = [tensor(n * MIB) for n in sizes]
addresses = [x.data_ptr() for x in pieces]
for _ in range(3):
    del pieces[0]                                        # 30 MiB is unused for longest
tensor(60 * MIB)                                         # 120 + 60 is above 0.6 x 256 MiB, 150 is not
assert torch.musa.memory_reserved() == 150 * MIB, torch.musa.memory_reserved()
assert torch.musa.memory_stats()["num_alloc_retries"] == 0
assert tensor(40 * MIB).data_ptr() == addresses[1]
""",
        TORCH_MUSA_SIM_MEMORY="256MiB",
        PYTORCH_MUSA_ALLOC_CONF="garbage_collection_threshold:0.6",
    )


def test_blocks_above_max_split_size_are_not_cut(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
x = tensor(64 * MIB)
del x
y = tensor(12 * MIB)                                     # not from the cached 64 MiB
assert torch.musa.memory_reserved() == 76 * MIB
z = tensor(60 * MIB)                                     # nearly fills it: taken whole
assert torch.musa.memory_reserved() == 76 * MIB
stats = torch.musa.memory_stats()
assert stats["max_split_size"] == 32 * MIB
assert (stats["oversize_segments.current"], stats["oversize_allocations.current"]) == (1, 1)
""",
        PYTORCH_ALLOC_CONF="max_split_size_mb:32",
    )


def test_sizes_are_rounded_to_a_fraction_of_a_power_of_two(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
x = tensor(1200 * 1024)
assert torch.musa.memory_allocated() == 1280 * 1024
y = tensor(1000)                                         # sizes of the bins stay as they are
assert torch.musa.memory_allocated() == 1281 * 1024
""",
        PYTORCH_MUSA_ALLOC_CONF="roundup_power2_divisions:4",
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("max_split_size:64", "unknown key 'max_split_size'"),
        ("max_split_size_mb", "is no key:value pair"),
        ("max_split_size_mb:lots", "wrong form"),
        ("garbage_collection_threshold:1.5", "(0.0, 1.0)"),
        ("roundup_power2_divisions:[256:1", "brackets"),
    ],
)
def test_a_bad_value_is_refused_at_first_use(run_script: RunScript, value: str, reason: str) -> None:
    run_script(
        f"""
        import torch
        try:
            torch.empty(1, device="musa")
        except ValueError as error:
            text = str(error)
            assert {reason!r} in text and {value!r} in text and "garbage_collection_threshold, max_split" in text, text
        else:
            raise AssertionError("accepted")
        """,
        PYTORCH_MUSA_ALLOC_CONF=value,
    )


def test_keys_of_other_backends_may_stand_in_the_shared_variable(run_script: RunScript) -> None:
    run_script("import torch; torch.empty(1, device='musa')", PYTORCH_ALLOC_CONF="backend:native")
    result = run_script("import torch; torch.empty(1, device='musa')", check=False, PYTORCH_ALLOC_CONF="bakcend:native")
    assert "unknown key 'bakcend'" in result.stderr


def test_expandable_segments_are_accepted_with_a_warning(run_script: RunScript) -> None:
    result = run_script(
        "import torch; torch.empty(1, device='musa')", PYTORCH_MUSA_ALLOC_CONF="expandable_segments:True"
    )
    assert "expandable_segments has no effect" in result.stderr
