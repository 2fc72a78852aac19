"""PYTORCH_MUSA_ALLOC_CONF and PYTORCH_ALLOC_CONF."""

from __future__ import annotations

import pytest
import torch
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


EVERY_KEY = [
    "garbage_collection_threshold:0.9",
    "max_split_size_mb:64",
    "max_non_split_rounding_mb:64",
    "roundup_power2_divisions:[256:1,512:2,>:4]",
    "large_segment_size_mb:20",
    "expandable_segments:False",
    "pinned_max_round_threshold_mb:64",
    "pinned_max_cached_size_mb:64",
    "pinned_use_background_threads:False",
    "per_process_memory_fraction:0.9",
    "throw_on_musamalloc_oom:False",
    "throw_on_cudamalloc_oom:False",
    "backend:native",
    "graph_capture_record_stream_reuse:True",
    "pinned_num_register_threads:4",
    "pinned_reserve_segment_size_mb:16",
    "pinned_use_musa_host_register:True",
    "pinned_use_cuda_host_register:True",
    "release_lock_on_musamalloc:True",
    "release_lock_on_cudamalloc:True",
]


@pytest.mark.parametrize("variable", ["PYTORCH_MUSA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_every_key_of_cuda_and_of_the_real_allocator_is_accepted(run_script: RunScript, variable: str) -> None:
    run_script("import torch; torch.empty(1, device='musa')", **{variable: ",".join(EVERY_KEY)})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("backend:musaMallocAsync", "has no backend 'musaMallocAsync', only 'native'"),
        ("backend:fast", "unknown backend 'fast'"),
        ("cpu:fast", "can only be 'unified'"),
        ("per_process_memory_fraction:1.5", "above 0 and up to 1"),
        ("throw_on_musamalloc_oom:yes", "is True or False, not 'yes'"),
        ("pinned_num_register_threads:many", "is a number, not 'many'"),
    ],
)
def test_a_bad_setting_is_refused_at_run_time(value: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is not accepted") as refused:
        torch.musa.memory._set_allocator_settings(value)
    assert reason in str(refused.value)


def test_settings_can_be_changed_at_run_time(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
x = tensor(64 * MIB)
del x
tensor(12 * MIB)
assert torch.musa.memory_reserved() == 64 * MIB
torch.musa.memory._set_allocator_settings("max_split_size_mb:32,per_process_memory_fraction:0.5")
assert torch.musa.get_per_process_memory_fraction() == 0.5
tensor(12 * MIB)                                         # not from the cached 64 MiB any more
assert torch.musa.memory_reserved() == 76 * MIB
torch._C._accelerator_setAllocatorSettings("throw_on_musamalloc_oom:True")
x = tensor(20 * MIB)
try:
    tensor(60 * MIB)
except torch.OutOfMemoryError:
    assert torch.musa.memory_stats()["num_oom_rejections"] == 1
else:
    raise AssertionError("beyond the fraction")
""",
        TORCH_MUSA_SIM_MEMORY="256MiB",
    )


def test_beyond_the_fraction_a_request_fails_at_once_or_after_emptying_the_cache(run_script: RunScript) -> None:
    script = (
        TENSOR
        + """
assert torch.musa.get_per_process_memory_fraction(0) == 0.5
x = tensor(100 * MIB)
del x
try:
    tensor(120 * MIB)
    outcome = "served"
except torch.OutOfMemoryError:
    outcome = "refused"
stats = torch.musa.memory_stats()
print(outcome, torch.musa.memory_reserved() // MIB, stats["num_oom_rejections"], stats["num_alloc_retries"])
"""
    )
    fraction = "per_process_memory_fraction:0.5"
    for setting, expected in [
        (fraction, "served 120 0 1"),
        (fraction + ",throw_on_musamalloc_oom:True", "refused 100 1 0"),
    ]:
        result = run_script(script, TORCH_MUSA_SIM_MEMORY="256MiB", PYTORCH_MUSA_ALLOC_CONF=setting)
        assert result.stdout.strip() == expected


EXPANDABLE = {"PYTORCH_MUSA_ALLOC_CONF": "expandable_segments:True", "TORCH_MUSA_SIM_MEMORY": "256MiB"}


def test_an_expandable_segment_grows_where_it_lies(run_script: RunScript) -> None:
    script = (
        TENSOR
        + """
for n in range(20, 130, 10):                             # a growing cache: each step frees the one before
    x = None
    x = tensor(n * MIB)
print(torch.musa.max_memory_reserved() // MIB)
"""
    )
    fixed = run_script(script, TORCH_MUSA_SIM_MEMORY="256MiB")
    grown = run_script(script, **EXPANDABLE)
    assert int(grown.stdout) == 120
    assert int(fixed.stdout) > 200


def test_pieces_of_an_expandable_segment_serve_a_request_that_none_of_them_holds(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
pieces = [tensor(40 * MIB) for _ in range(6)]
segments = [s for s in torch.musa.memory_snapshot() if s["segment_type"] == "large"]
assert len(segments) == 1 and segments[0]["is_expandable"], segments
del pieces[1:5]
x = tensor(160 * MIB)                                    # with fixed segments: out of memory
x.fill_(7)
assert int(x[::MIB].sum()) == 7 * 160
""",
        **EXPANDABLE,
    )


def test_unused_pages_of_an_expandable_segment_return_to_the_card(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
torch.musa.memory._record_memory_history(stacks="python")
a, b, c = tensor(20 * MIB), tensor(20 * MIB), tensor(20 * MIB)
b.fill_(1)
before = torch.musa.mem_get_info()[0]
address = b.data_ptr()
del b                                                    # between two that live
torch.musa.empty_cache()
assert torch.musa.memory_reserved() == 40 * MIB
assert torch.musa.mem_get_info()[0] == before + 20 * MIB
runs = [s for s in torch.musa.memory_snapshot() if s["segment_type"] == "large"]
assert [s["total_size"] // MIB for s in runs] == [20, 20]
b = tensor(20 * MIB)                                     # the hole is filled again, with fresh memory
assert b.data_ptr() == address and int(b.sum()) == 0
del a, b, c
torch.musa.empty_cache()
assert torch.musa.memory_reserved() == 0
assert torch.musa.memory_stats()["segment.all.current"] == 0
assert torch.musa.mem_get_info()[0] == torch.musa.mem_get_info()[1]
actions = [e["action"] for e in torch.musa.memory._snapshot()["device_traces"][0]]
assert {"segment_map", "segment_unmap"} <= set(actions) and "segment_alloc" not in actions, actions
""",
        **EXPANDABLE,
    )


def test_a_full_card_with_expandable_segments_runs_out_and_goes_on(run_script: RunScript) -> None:
    run_script(
        TENSOR
        + """
x = tensor(200 * MIB)
small = [tensor(1000) for _ in range(100)]
try:
    tensor(100 * MIB)
except torch.OutOfMemoryError:
    pass
else:
    raise AssertionError("more than the card has")
side = torch.musa.Stream()
del x
with torch.musa.stream(side):
    y = tensor(100 * MIB)                                # unused pages of the other stream make room
assert torch.musa.memory_allocated() == 100 * MIB + 100 * 1024
pool = torch.musa.MemPool()
with torch.musa.use_mem_pool(pool):
    z = tensor(30 * MIB)
assert [s["total_size"] // MIB for s in pool.snapshot()] == [40]
del pool, z
torch.musa.empty_cache()
assert torch.musa.memory_reserved() < 105 * MIB
""",
        **EXPANDABLE,
    )


def test_many_threads_on_expandable_segments(run_script: RunScript) -> None:
    run_script(
        """
        import torch
        from torch_musa_sim import _C
        torch.empty(1, device="musa")
        for seed in range(3):
            _C._allocator_stress(4, 6000, seed, 0, 3)
            torch.musa.empty_cache()
        assert torch.musa.memory_reserved() == 0
        """,
        PYTORCH_MUSA_ALLOC_CONF="expandable_segments:True",
    )
