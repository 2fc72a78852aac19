"""The host is smaller than the cards it plays: address space and memory."""

from __future__ import annotations

import shutil

import pytest
from musart_child import Child


def test_512_cards_of_80_gib_are_reservable_at_no_cost(child: Child) -> None:
    code = """
    m.call("musaSimInit")
    m.set_device(511); p = m.malloc(1 << 30); m.touch(p, 4096)
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
    print(m.device_count(), m.mem_info()[1], resident < 100 << 20)
    """
    assert child(code, CARDS="512", MEMORY="80GiB") == f"512 {80 << 30} True"


def test_512_cards_of_1_tib_shrink_with_one_warning(child: Child) -> None:
    code = "m.set_device(511); m.malloc(1 << 30); print(m.mem_info()[1] >> 30)"
    status, out, err = child.finish(code, CARDS="512", MEMORY="1TiB")
    assert status == 0
    assert 16 <= int(out) < 1024
    assert len(err.splitlines()) == 1
    assert "address space" in err


@pytest.mark.parametrize("gib", [30, 4])
def test_address_space_limit_shrinks_the_cards_with_one_warning_that_names_it(child: Child, gib: int) -> None:
    code = f"""
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({gib} << 30, {gib} << 30))
    free, total = m.mem_info()
    p = m.malloc(total); m.touch(p, 4096)
    import mmap; mmap.mmap(-1, {gib} << 28)  # the program keeps address space of its own
    print(total == free, m.device_count(), total >> 20)
    try:
        m.malloc(512)
    except m.MusaError as error:
        print(error.name)
    """
    status, out, err = child.finish(code)
    assert status == 0, err
    same, count, mib, name = out.split()
    assert (same, count, name) == ("True", "8", "musaErrorMemoryAllocation")
    assert 0.2 * gib * 1024 / 16 < int(mib) < gib * 1024 / 16
    assert len(err.splitlines()) == 1
    assert f"RLIMIT_AS (ulimit -v) of {gib}.00 GiB" in err


def test_hopeless_address_space_is_an_error_that_names_the_limit(child: Child) -> None:
    code = """
    import resource
    size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGESIZE")
    limit = size + (16 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    m.call("musaSimInit")
    """
    text = child.fails(code, CARDS="8")
    assert text.startswith("musaErrorInitializationError")
    assert "RLIMIT_AS" in text
    assert "TORCH_MUSA_SIM_CARDS" in text


def test_host_limit_refuses_with_both_figures_and_says_it_is_the_host(child: Child) -> None:
    text = child.fails("m.malloc(3 << 30)", HOST_MEMORY="1GiB")
    assert text.startswith("musaErrorSimHostMemory: the host is out of memory, not card musa:0")
    assert "3.00 GiB" in text
    assert "TORCH_MUSA_SIM_HOST_MEMORY=1GiB leaves" in text
    assert "MiB" in text
    assert "overcommit" in text


def test_refused_block_leaves_the_card_as_it_was(child: Child) -> None:
    code = """
    try:
        m.malloc(3 << 30)
    except m.MusaError as error:
        print(error.name)
    free, total = m.mem_info()
    print(free == total, m.malloc(512 << 20) != 0)
    """
    assert child(code, HOST_MEMORY="1GiB").split() == ["musaErrorSimHostMemory", "True", "True"]


def test_reserved_but_untouched_memory_does_not_count(child: Child) -> None:
    # As transformers' warm-up does: a block of the model's size that nobody writes to.
    code = "print(all(m.malloc(600 << 20) for _ in range(10)))"
    assert child(code, HOST_MEMORY="1GiB") == "True"


def test_touched_memory_counts(child: Child) -> None:
    code = """
    p = m.malloc(300 << 20); m.touch(p, 300 << 20)
    try:
        m.malloc(300 << 20)
    except m.MusaError as error:
        print(error.name)
    m.free(p)
    print(m.malloc(300 << 20) != 0)
    """
    assert child(code, HOST_MEMORY="512MiB").split() == ["musaErrorSimHostMemory", "True"]


def test_overcommit_switches_the_check_off(child: Child) -> None:
    code = "p = [m.malloc(79 << 30)]; m.set_device(1); p.append(m.malloc(79 << 30)); m.touch(p[1], 4096); print(len(p))"
    assert child(code, HOST_MEMORY="overcommit") == "2"


def test_without_a_setting_the_real_host_is_asked(child: Child) -> None:
    code = """
    for device in range(8):
        m.set_device(device); m.malloc(1 << 40)
    """
    text = child.fails(code, MEMORY="1TiB")
    assert text.startswith("musaErrorSimHostMemory")
    assert "1.00 TiB" in text
    assert "MemAvailable" in text or "cgroup" in text


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit to set a limit before the start")
def test_limit_on_private_data_is_reported_as_the_hosts(child: Child) -> None:
    code = "m.malloc(1 << 30)"
    status, _, err = child.finish(code, prefix=["prlimit", f"--data={256 << 20}"])
    assert status == 1
    assert "musaErrorSimHostMemory" in err
    assert "refused to map 1.00 GiB" in err


# Replaces the cgroup tree, for this child alone, by files that say what the test wants: 512 MiB allowed, 100 MiB used,
# of which 60 are page cache. $1: v1 or v2.
FAKE_CGROUP = """
mount -t tmpfs none /sys/fs/cgroup || exit 77
v1=$(sed -n 's/^[0-9]*:[^:]*memory[^:]*:\\(.*\\)$/\\1/p' /proc/self/cgroup)
if [ "$1" = v1 ]; then
  [ -n "$v1" ] || exit 77
  folder=/sys/fs/cgroup/memory$v1; limit=memory.limit_in_bytes; used=memory.usage_in_bytes; stat=total_
else
  grep -q '^0::' /proc/self/cgroup || exit 77
  folder=/sys/fs/cgroup; limit=memory.max; used=memory.current; stat=
fi
mkdir -p "$folder"
echo 536870912 > "$folder/$limit"; echo 104857600 > "$folder/$used"
printf '%sinactive_file 41943040\\n%sactive_file 20971520\\n' "$stat" "$stat" > "$folder/memory.stat"
shift; exec "$@"
"""


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_limit_of_the_cgroup_counts_without_its_page_cache(child: Child, version: str) -> None:
    code = """
    print(m.malloc(200 << 20) != 0, flush=True)  # 512 - (100 - 60) MiB, less the 256 MiB left to the host
    m.malloc(300 << 20)
    """
    status, out, err = child.finish(code, prefix=["unshare", "-m", "sh", "-c", FAKE_CGROUP, "sh", version])
    if status == 77 or "unshare failed" in err:
        pytest.skip("needs the right to mount and a memory cgroup of this version")
    assert (status, out.strip()) == (1, "True"), err
    assert "300.00 MiB and the memory cgroup /sys/fs/cgroup" in err
    assert "leaves 216.00 MiB" in err
