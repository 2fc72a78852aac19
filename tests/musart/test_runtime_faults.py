"""Host code that touches device memory dies as on hardware, after one line that says why."""

from __future__ import annotations

import signal

from musart_child import Child


def dies(child: Child, code: str, **settings: str | None) -> str:
    status, _, err = child.finish(code, **settings)
    assert status == -signal.SIGSEGV, err
    return err


def test_read_kills_the_process_after_one_line(child: Child) -> None:
    err = dies(child, "m.set_device(3); p = m.malloc(4096); print(p); ctypes.string_at(p + 100, 1)")
    assert len(err.splitlines()) == 1
    assert "card musa:3" in err
    assert "byte 100 of the block of 4096 bytes at 0x" in err
    assert ".cpu()" in err


def test_write_kills_the_process_too(child: Child) -> None:
    err = dies(child, "p = m.malloc(4096); ctypes.memset(p, 0, 1)")
    assert "host code touched device memory" in err


def test_address_of_no_block_is_said_to_be_none(child: Child) -> None:
    assert "no live block" in dies(child, "p = m.malloc(4096); m.free(p); ctypes.string_at(p, 1)")


def test_kernel_on_freed_memory_is_told_apart(child: Child) -> None:
    err = dies(child, "p = m.malloc(4 << 20); m.free(p); m.touch(p, 1)")
    assert "a kernel touched device memory that isn't there" in err


def test_report_can_be_switched_off(child: Child) -> None:
    assert dies(child, "p = m.malloc(4096); ctypes.string_at(p, 1)", FAULT_REPORT="0") == ""


def test_other_faults_get_no_line(child: Child) -> None:
    assert dies(child, "m.malloc(4096); ctypes.string_at(8, 1)") == ""


def test_signal_sent_by_hand_still_kills(child: Child) -> None:
    assert dies(child, "import signal; m.malloc(4096); os.kill(os.getpid(), signal.SIGSEGV)") == ""


def test_pythons_own_handler_runs_after_ours(child: Child) -> None:
    err = dies(child, "import faulthandler; faulthandler.enable(); p = m.malloc(512); ctypes.string_at(p, 1)")
    assert err.count("host code touched device memory") == 1
    assert err.count("Fatal Python error: Segmentation fault") == 1


def test_pythons_handler_installed_later_still_ends_the_process(child: Child) -> None:
    err = dies(child, "import faulthandler; p = m.malloc(512); faulthandler.enable(); ctypes.string_at(p, 1)")
    assert err.count("Fatal Python error: Segmentation fault") == 1


def test_callback_and_block_lookup_of_the_layer_above_are_used(child: Child) -> None:
    code = """
    p = m.malloc(1 << 20)
    out = ctypes.POINTER(ctypes.c_size_t)
    lookup_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, out, out)
    def find(address, block, size):
        block[0], size[0] = p + 512, 1536
        return 1
    lookup = lookup_type(find)
    stack = ctypes.CFUNCTYPE(None)(lambda: os.write(2, b"stack of the caller\\n"))
    m.lib.musaSimSetBlockLookup(lookup); m.lib.musaSimSetFaultCallback(stack)
    ctypes.string_at(p + 600, 1)
    """
    line, stack = dies(child, code).splitlines()
    assert "byte 88 of the block of 1536 bytes" in line
    assert stack == "stack of the caller"


def test_fault_in_another_thread_is_reported(child: Child) -> None:
    code = """
    import threading
    p = m.malloc(512)
    t = threading.Thread(target=ctypes.string_at, args=(p, 1)); t.start(); t.join()
    """
    assert "host code touched device memory" in dies(child, code)
