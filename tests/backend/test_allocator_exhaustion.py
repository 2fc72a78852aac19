"""A full card, a full host: what still fits, what is retried, what the error says."""

from __future__ import annotations

from conftest import RunScript

PRELUDE = """
import torch

MIB = 1 << 20

def tensor(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device="musa")

def stats():
    return torch.musa.memory_stats()

def refused(nbytes):
    try:
        tensor(nbytes)
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError(f"{nbytes} bytes fitted")
"""


def test_a_card_of_256_mib_holds_256_mib(run_script: RunScript) -> None:
    run_script(
        PRELUDE
        + """
whole = tensor(256 * MIB)
text = refused(512)
assert "MUSA out of memory. Tried to allocate 512 bytes. Card 0 (MTT S5000)" in text, text
assert "total capacity of 256.00 MiB of which 0 bytes is free" in text, text
assert "256.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated" in text, text
del whole
text = refused(256 * MIB + 512)
assert "256.00 MiB (268435968 bytes)" in text, text
assert stats()["num_ooms"] == 2
torch.musa.empty_cache()

blocks = []
try:
    while True:
        blocks.append(tensor(2 * MIB))
except torch.OutOfMemoryError:
    pass
assert len(blocks) == 128, len(blocks)
assert torch.musa.memory_reserved() == torch.musa.memory_allocated() == 256 * MIB
blocks.pop()
assert tensor(MIB).numel() == MIB  # the exact size where no 2 MiB segment of the small pool fits
""",
        TORCH_MUSA_SIM_MEMORY="256MiB",
    )


def test_cached_memory_is_released_before_giving_up(run_script: RunScript) -> None:
    run_script(
        PRELUDE
        + """
for size in (100, 60):
    tensor(size * MIB)                                   # cached: 160 MiB
side = torch.musa.Stream()
with torch.musa.stream(side):
    small = [tensor(1000) for _ in range(8)]
    del small                                            # in a thread's bin, of another stream
big = tensor(256 * MIB)
assert (stats()["num_alloc_retries"], stats()["num_ooms"]) == (1, 0), stats()
del big
# a block that waits for another stream is waited for
x = tensor(200 * MIB)
with torch.musa.stream(side):
    torch.musa._sleep(50_000_000)
x.record_stream(side)
del x
assert stats()["active_bytes.all.current"] == 200 * MIB
y = tensor(256 * MIB)
assert side.query() and stats()["num_sync_all_streams"] >= 1
""",
        TORCH_MUSA_SIM_MEMORY="256MiB",
    )


def test_after_out_of_memory_work_goes_on(run_script: RunScript) -> None:
    run_script(
        PRELUDE
        + """
x = torch.ones(16 * MIB, device="musa")                  # 64 MiB
for _ in range(3):
    try:
        y = torch.cat([x, x, x, x])                      # inside an operator
    except torch.OutOfMemoryError:
        continue
    raise AssertionError("320 MiB on a card of 256 MiB")
assert (x + x).sum().item() == 32 * MIB
assert stats()["num_ooms"] == 3
""",
        TORCH_MUSA_SIM_MEMORY="256MiB",
    )


def test_a_full_host_is_told_from_a_full_card(run_script: RunScript) -> None:
    run_script(
        PRELUDE
        + """
text = refused(20 << 30)
assert "the host that simulates the card is full, not the card" in text, text
assert "Tried to allocate 20.00 GiB" in text and "total capacity of 80.00 GiB" in text, text
assert "TORCH_MUSA_SIM_HOST_MEMORY=overcommit" in text, text
assert tensor(MIB).numel() == MIB
""",
        TORCH_MUSA_SIM_HOST_MEMORY="6GiB",
        TORCH_MUSA_SIM_MEMORY="80GiB",
    )
