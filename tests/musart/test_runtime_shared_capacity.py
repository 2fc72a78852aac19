"""Processes of one user and scope share the cards' memory, whatever becomes of them."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from musart_child import Child

HOLD = """
m.set_device({device})
p = m.malloc({size})
print("ready", flush=True)
sys.stdin.read()
"""


def hold(child: Child, size: str, device: int = 0, **settings: str | None) -> subprocess.Popen[str]:
    process = child.start(HOLD.format(size=size, device=device), **settings)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.stderr
    return process


def test_second_process_sees_what_the_first_holds(child: Child) -> None:
    process = hold(child, "200 << 20", MEMORY="256MiB")
    assert child("print(m.mem_info())", MEMORY="256MiB") == f"({56 << 20}, {256 << 20})"
    text = child.fails("m.malloc(57 << 20)", MEMORY="256MiB")
    assert text.startswith("musaErrorMemoryAllocation")
    assert "this process holds 0 B, 1 other process 200.00 MiB" in text
    assert child("print(m.malloc(56 << 20) != 0)", MEMORY="256MiB") == "True"
    process.communicate("")
    assert child("print(m.mem_info()[0])", MEMORY="256MiB") == str(256 << 20)


def test_the_card_not_its_visible_number_is_shared(child: Child) -> None:
    hold(child, "200 << 20", device=1, MEMORY="256MiB", MUSA_VISIBLE_DEVICES="0,5")
    code = "print(m.mem_info()[0] >> 20)"
    assert child(code, MEMORY="256MiB", MUSA_VISIBLE_DEVICES="5") == "56"
    assert child(code, MEMORY="256MiB", MUSA_VISIBLE_DEVICES="1") == "256"


def test_another_scope_has_cards_of_its_own(child: Child) -> None:
    hold(child, "200 << 20", MEMORY="256MiB")
    code = "print(m.mem_info()[0] >> 20)"
    assert child(code, MEMORY="256MiB", SCOPE=f"{child.scope}-b") == "256"
    assert child(code, MEMORY="256MiB") == "56"


def test_killed_process_gives_its_memory_back(child: Child) -> None:
    process = hold(child, "256 << 20", MEMORY="256MiB")
    process.kill()
    process.wait()
    assert child("print(m.malloc(256 << 20) != 0)", MEMORY="256MiB") == "True"


def test_killed_process_whose_parent_has_not_looked_yet_counts_as_dead(child: Child) -> None:
    process = hold(child, "256 << 20", MEMORY="256MiB")
    process.kill()
    time.sleep(0.2)  # a zombie now: nobody waits for it
    assert child("print(m.malloc(256 << 20) != 0)", MEMORY="256MiB") == "True"


def test_twenty_processes_started_and_killed_at_random_leave_nothing_behind(child: Child) -> None:
    code = """
    import random
    rng, live = random.Random(os.getpid()), []
    print("ready", flush=True)
    while True:
        if len(live) > 5 or (live and rng.random() < 0.4): m.free(live.pop(rng.randrange(len(live))))
        try:
            live.append(m.malloc(rng.choice([512, 300_000, 2 << 20, 9 << 20])))
        except m.MusaError as error:
            assert error.name == "musaErrorMemoryAllocation", error
            if live: m.free(live.pop())
    """
    rng = random.Random(3)
    running: list[subprocess.Popen[str]] = []
    for _ in range(20):
        process = child.start(code, MEMORY="256MiB")
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        running.append(process)
        time.sleep(rng.random() * 0.05)
        while len(running) > 2 or (running and rng.random() < 0.5):
            running.pop(rng.randrange(len(running))).kill()
    for process in running:
        process.kill()
        process.wait()
    assert child("print(m.mem_info()[0] >> 20, m.malloc(256 << 20) != 0)", MEMORY="256MiB") == "256 True"
    # The last process left in order and took the file along.
    assert not list(Path("/dev/shm").glob(f"torch_musa_sim.*.{child.scope}"))


def test_the_sum_over_processes_never_passes_the_capacity(child: Child) -> None:
    code = """
    count = 0
    try:
        while True:
            m.malloc(1 << 20); count += 1
    except m.MusaError:
        pass
    print(count, flush=True)
    sys.stdin.read()
    """
    processes = [child.start(code, MEMORY="64MiB") for _ in range(4)]
    counts = []
    for process in processes:
        assert process.stdout is not None
        counts.append(int(process.stdout.readline()))
    assert sum(counts) == 64


def test_without_a_folder_for_the_file_a_process_has_the_cards_for_itself(child: Child) -> None:
    # A file-size limit refuses the table wherever it is put.
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    m.malloc(200 << 20); print(m.mem_info()[0] >> 20)
    """
    status, out, err = child.finish(code, MEMORY="256MiB")
    assert (status, out.strip()) == (0, "56")
    assert "each process has the cards for itself" in err
    assert len(err.splitlines()) == 1
