"""Forked children: refused after the parent's first use, free before it."""

from __future__ import annotations

import os
import signal
import time

from musart_child import Child

SENTENCE = (
    "Cannot re-initialize MUSA in forked subprocess. To use MUSA with multiprocessing, you must use the 'spawn' "
    "start method"
)

IN_CHILD = """
def in_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(); status = 0
        except m.MusaError as error:
            print(error, flush=True); status = 3
        finally:
            sys.stdout.flush(); os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_every_call_in_a_child_of_a_used_device_names_the_way_out(child: Child) -> None:
    code = (
        IN_CHILD
        + """
p, s, e = m.malloc(4096), m.stream(), m.event()
calls = [
    lambda: m.call("musaSimInit"), lambda: m.malloc(512), lambda: m.free(p), lambda: m.upload(p, b"x"),
    lambda: m.memset(p, 0, 1), lambda: m.mem_info(), lambda: m.set_device(0), lambda: m.launch(None),
    lambda: m.launch(s),
    lambda: m.record(e, s), lambda: m.call("musaStreamSynchronize", s), lambda: m.call("musaDeviceSynchronize"),
    lambda: m.malloc_host(512), lambda: m.properties(), lambda: m.attributes(p), lambda: m.stream(),
    lambda: m.call("musaGetDevice", ctypes.byref(ctypes.c_int())),
]
print([in_child(call) for call in calls] == [3] * len(calls))
"""
    )
    lines = child(code).splitlines()
    assert lines[-1] == "True"
    assert set(lines[:-1]) == {f"musaErrorSimForked: {SENTENCE}"}
    assert len(lines) == 18


def test_child_can_still_ask_how_many_cards_there_are(child: Child) -> None:
    code = (
        IN_CHILD
        + """
m.malloc(512)
print(in_child(lambda: print(m.device_count(), m.lib.musaSimInBadFork())), m.lib.musaSimInBadFork())
"""
    )
    assert child(code, CARDS="5").split() == ["5", "1", "0", "0"]


def test_child_of_a_parent_that_only_counted_uses_the_device(child: Child) -> None:
    code = (
        IN_CHILD
        + """
print(m.device_count())
def work():
    p = m.malloc(4096); m.upload(p, b"fine"); print(m.download(p, 4).decode())
print(in_child(work), m.lib.musaSimIsInitialized())
"""
    )
    assert child(code).split() == ["8", "fine", "0", "0"]


def test_child_neither_sees_nor_changes_the_parents_memory(child: Child) -> None:
    code = (
        IN_CHILD
        + """
import signal
p = m.malloc(4 << 20); m.memset(p, 1, 4 << 20)
print(in_child(lambda: m.touch(p, 1)) == -signal.SIGSEGV, flush=True)
print(set(m.download(p, 4 << 20)))
"""
    )
    status, out, err = child.finish(code)
    assert (status, out.split()) == (0, ["True", "{1}"])
    assert "forked after the device was used; use the 'spawn' start method" in err


def test_child_costs_the_parent_nothing_and_frees_nothing(child: Child) -> None:
    code = (
        IN_CHILD
        + """
p = m.malloc(100 << 20)
print(in_child(lambda: None), (m.mem_info()[1] - m.mem_info()[0]) >> 20)
# A child that leaves through Python's own exit runs the exit handlers it inherited.
sys.stdout.flush()
pid = os.fork()
if pid == 0: sys.exit(0)
print(os.waitpid(pid, 0)[1], (m.mem_info()[1] - m.mem_info()[0]) >> 20)
"""
    )
    assert child(code).split() == ["0", "100", "0", "100"]


def test_child_that_outlives_a_killed_parent_keeps_no_lock_and_no_memory(child: Child) -> None:
    code = """
    import threading
    p = m.malloc(256 << 20)
    def churn():
        while True: m.mem_info()
    for _ in range(2): threading.Thread(target=churn, daemon=True).start()
    pids = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os.close(1); os.close(2); import time; time.sleep(60); os._exit(0)
        pids.append(pid)
    print(*pids, flush=True)
    sys.stdin.read()
    """
    process = child.start(code, MEMORY="256MiB")
    assert process.stdout is not None
    orphans = process.stdout.readline().split()
    process.kill()
    process.wait()
    try:
        assert len(orphans) == 20
        started = time.monotonic()
        assert child("print(m.malloc(256 << 20) != 0)", MEMORY="256MiB") == "True"
        assert time.monotonic() - started < 30, "waited for the orphans to end"
    finally:
        for pid in orphans:
            os.kill(int(pid), signal.SIGKILL)


def test_spawned_process_of_a_used_device_works(child: Child) -> None:
    code = """
    import subprocess
    m.malloc(512)
    folder = os.path.dirname(m.__file__)
    script = f"import sys; sys.path.insert(0, {folder!r}); import musart_api as m; print(m.malloc(512) != 0)"
    print(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip())
    """
    assert child(code) == "True"


def test_process_exits_cleanly_with_threads_streams_and_memory_alive(child: Child) -> None:
    code = """
    import threading, atexit
    p, s = m.malloc(8 << 20), m.stream()
    def work():
        while True: m.launch(s); m.free(m.malloc(4096))
    for _ in range(3): threading.Thread(target=work, daemon=True).start()
    atexit.register(lambda: m.launch(s))
    """
    for _ in range(5):
        assert child(code) == ""
