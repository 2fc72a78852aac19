"""Looking at the cards from outside: who uses them, how busy they are, without becoming a user."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from musart_child import Child

OBSERVER = Path(__file__).parent.parent.parent / "torch_musa_sim" / "cli" / "_observe.py"
LOOK = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("observer", {str(OBSERVER)!r})
o = importlib.util.module_from_spec(spec); sys.modules["observer"] = o; spec.loader.exec_module(o)
r = o.Runtime()
"""
# 4 ms of work on a card whose launches take the host 1 us (round_card).
WORK = """
m.launch(None, flops=4e9)
m.call("musaDeviceSynchronize")
"""


def look(child: Child, code: str, **settings: str | None) -> str:
    return child(LOOK + textwrap.dedent(code), **settings)


def start(child: Child, code: str, **settings: str | None) -> int:
    process = child.start(code + "\nprint('ready', flush=True)\nsys.stdin.read()\n", **settings)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
    return process.pid


def test_cards_are_described_as_the_runtime_describes_them(child: Child) -> None:
    code = """
    c, p = r.card(3), m.properties(0)
    assert c.name == p.name.decode() == "MTT S5000" and c.memory == p.total_memory, (c, p)
    assert (c.major, c.minor, c.multiprocessors) == (p.major, p.minor, p.multiprocessors)
    assert c.uuid.replace("-", "") == bytes(p.uuid).hex() and c.pci == f"{p.pci_domain:08x}:{p.pci_bus:02x}:00.0"
    assert c.serial != r.card(2).serial
    print(r.card_count(), c.power_limit_w, c.links, c.pci)
    """
    assert look(child, code, MUSA_VISIBLE_DEVICES="3") == "8 950.0 14 00000000:04:00.0"


def test_addresses_on_the_bus_are_valid_for_512_cards(child: Child) -> None:
    code = """
    places = {r.card(i).pci for i in range(512)}
    assert len(places) == 512
    print(r.card(0).pci, r.card(254).pci, r.card(255).pci, r.card(511).pci)
    """
    assert look(child, code, CARDS="512") == "00000000:01:00.0 00000000:ff:00.0 00000001:01:00.0 00000002:02:00.0"


def test_an_observer_is_no_user_and_leaves_no_file(child: Child) -> None:
    assert look(child, "print(r.cards()[0].processes, m.lib.musaSimIsInitialized())") == "() 0"
    assert not list(Path("/dev/shm").glob(f"torch_musa_sim.*.{child.scope}"))


def test_memory_and_work_of_other_processes_are_seen(child: Child, round_card: str) -> None:
    first = start(child, "m.set_device(1); m.malloc(3 << 20);" + WORK, CARD=round_card)
    second = start(child, "m.malloc(5 << 20)", CARD=round_card, MUSA_VISIBLE_DEVICES="1,0")
    code = """
    c = r.card(1)
    print(c.memory_used >> 20, [(p.pid, p.memory >> 20, p.busy > 0.9) for p in c.processes], len(r.card(0).processes))
    print("m.malloc(5 << 20)" in c.processes[-1].command or "m.malloc(5 << 20)" in c.processes[0].command)
    """
    users = sorted([(first, 3, True), (second, 5, False)])
    assert look(child, code, CARD=round_card) == f"8 {users} 0\nTrue"


def test_the_cards_are_those_of_the_program_that_runs_unless_something_else_is_asked_for(
    child: Child, round_card: str
) -> None:
    text = Path(round_card).read_text().replace("model = S5000", "model = ROUND")
    Path(round_card).write_text(text)
    start(child, "m.malloc(5 << 20)", CARD=round_card, CARDS="3", MEMORY="1GiB", MUSA_VISIBLE_DEVICES="2")
    code = "c = r.card(2); print(r.card_count(), c.model, c.memory >> 20, c.memory_used >> 20)"
    assert look(child, code) == "3 ROUND 1024 5"
    assert look(child, code, CARDS="4") == "4 S5000 81837 5"
    assert look(child, code, MEMORY="512MiB") == "8 S5000 512 5"
    assert look(child, "m.malloc(1 << 20)\n" + code) == "8 S5000 81837 5"  # uses the device itself
    for process in child.running:
        process.kill()
        process.wait()
    assert look(child, code) == "8 S5000 81837 0"


def test_a_dead_process_is_no_user(child: Child) -> None:
    start(child, "m.malloc(5 << 20)")
    child.running[-1].kill()
    assert look(child, "print(r.card(0).memory_used, r.card(0).processes)") == "0 ()"


def test_utilisation_is_the_busy_share_of_virtual_time(child: Child, round_card: str) -> None:
    # The host goes on for as long as the kernel ran.
    code = """
    before = m.host_clock()
    start, end = m.launch(None, flops=4e9)
    m.call("musaDeviceSynchronize")
    m.lib.musaSimHostAdvance(ctypes.c_int64(4_000_000))
    expected = (end - start) / m.host_clock()
    c = r.card(0)
    assert abs(c.busy - expected) < 1e-12 and 0.49 < c.busy < 0.51, (c.busy, expected)
    assert abs(c.power_w - (95 + c.busy * (950 - 95))) < 1e-9 and abs(c.temperature_c - (45 + c.busy * 35)) < 1e-9
    assert c.memory_busy == 0
    """
    look(child, code, CARD=round_card)


def test_memory_utilisation_is_the_share_of_full_bandwidth(child: Child, round_card: str) -> None:
    # 1e9 bytes take 1 ms at 1e12 bytes/s; the kernel computes for 4 ms.
    code = """
    m.launch(None, flops=4e9, bytes=1e9)
    m.call("musaDeviceSynchronize")
    c = r.card(0)
    assert abs(c.memory_busy - 1e6 / m.host_clock()) < 1e-12 and 0.24 < c.memory_busy < 0.25, c.memory_busy
    """
    look(child, code, CARD=round_card)


def test_overlapping_streams_are_counted_once(child: Child, round_card: str) -> None:
    code = """
    a, b = m.stream(), m.stream()
    m.launch(a, flops=4e9); m.launch(b, flops=4e9)
    m.call("musaDeviceSynchronize")
    c = r.card(0)
    assert 0.99 < c.busy <= (4e6 + 3000) / m.host_clock() < 1, (c.busy, m.host_clock())
    """
    look(child, code, CARD=round_card)


def test_old_work_is_forgotten_after_two_virtual_seconds(child: Child, round_card: str) -> None:
    code = """
    m.launch(None, flops=3e12); m.call("musaDeviceSynchronize")
    busy = r.card(0).busy
    for _ in range(4):
        m.lib.musaSimHostAdvance(ctypes.c_int64(1_100_000_000)); m.launch(None)
    m.call("musaDeviceSynchronize")
    assert busy > 0.99 and r.card(0).busy < 1e-5, (busy, r.card(0).busy)
    """
    look(child, code, CARD=round_card)


def test_shares_of_processes_add_up_and_end_at_one(child: Child, round_card: str) -> None:
    for _ in range(2):
        start(child, WORK, CARD=round_card)
    assert look(child, "c = r.card(0); print(c.busy, [p.busy > 0.9 for p in c.processes])", CARD=round_card) == (
        "1.0 [True, True]"
    )


def test_a_process_without_a_shared_file_sees_itself(child: Child, round_card: str) -> None:
    code = """
    import resource, signal
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    m.malloc(2 << 20); m.launch(None, flops=4e9); m.call("musaDeviceSynchronize")
    c = r.card(0)
    print(c.memory_used >> 20, [p.pid == os.getpid() for p in c.processes], c.busy > 0.9)
    """
    status, out, err = child.finish(LOOK + textwrap.dedent(code), CARD=round_card)
    assert (status, out) == (0, "2 [True] True\n"), err


def test_a_forked_child_may_look(child: Child) -> None:
    code = """
    m.malloc(2 << 20)
    sys.stdout.flush()
    if os.fork() == 0:
        print(r.card(0).memory_used >> 20, flush=True); os._exit(0)
    os.wait()
    """
    assert look(child, code) == "2"


@pytest.mark.parametrize(("cards", "expected"), [("8", "[1, 1, 2, 2, 3, 3]"), ("2", "[1, 1, -1, -1, -1, -1]")])
def test_links_make_a_full_mesh_of_the_cards_that_exist(child: Child, cards: str, expected: str) -> None:
    assert look(child, "print([r.link_peer(0, i) for i in range(6)])", CARDS=cards) == expected
    every = """
    links = [(a, b) for a in range(8) for i in range(14) for b in [r.link_peer(a, i)]]
    assert all(links.count((a, b)) == 2 for a in range(8) for b in range(8) if a != b) and len(links) == 112
    """
    if cards == "8":
        look(child, every)


def test_what_does_not_exist_is_named(child: Child) -> None:
    code = """
    for call in (lambda: r.card(9), lambda: r.link_peer(0, 14)):
        try: call()
        except o.ObserveError as error: print(error)
    """
    text = look(child, code)
    assert "there is no card 9 on this host, valid are 0 .. 7" in text
    assert "there is no port 14" in text
