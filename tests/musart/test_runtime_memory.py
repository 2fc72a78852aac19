"""Device memory of one process: addresses, capacity, kinds of pointers, copies and fills."""

from __future__ import annotations

from musart_child import Child

MIB = 1 << 20


def test_one_block_of_the_whole_card_fits_and_512_bytes_more_do_not(child: Child) -> None:
    text = child.fails("m.malloc(256 << 20); m.malloc(512)", MEMORY="256MiB")
    assert text.startswith("musaErrorMemoryAllocation: card musa:0 (MTT S5000) is out of memory")
    assert "512 B asked for, 0 B of 256.00 MiB free" in text


def test_blocks_of_2_mib_until_full_are_exactly_128(child: Child) -> None:
    code = """
    blocks = []
    try:
        while True:
            blocks.append(m.malloc(2 << 20))
    except m.MusaError as error:
        assert error.name == "musaErrorMemoryAllocation", error
    print(len(blocks), len(set(blocks)), all(b % (2 << 20) == 0 for b in blocks), m.mem_info())
    for b in blocks[::2]: m.free(b)
    print(m.mem_info())
    for b in blocks[1::2]: m.free(b)
    print(m.mem_info(), m.malloc(256 << 20) != 0)
    """
    lines = child(code, MEMORY="256MiB").splitlines()
    assert lines[0] == f"128 128 True (0, {256 * MIB})"
    assert lines[1] == f"({128 * MIB}, {256 * MIB})"
    assert lines[2] == f"({256 * MIB}, {256 * MIB}) True"


def test_fragmented_card_still_takes_what_its_capacity_allows(child: Child) -> None:
    code = """
    blocks = [m.malloc(1 << 20) for _ in range(256)]
    for b in blocks[::2]: m.free(b)
    print(m.malloc(128 << 20) != 0, m.mem_info()[0])
    """
    assert child(code, MEMORY="256MiB") == "True 0"


def test_request_beyond_the_card_or_of_nothing(child: Child) -> None:
    assert "16.00 EiB asked for" in child.fails("m.malloc(2**64 - 1)")
    assert child("print(m.malloc(0), m.mem_info()[0] == m.mem_info()[1])") == "0 True"


def test_sizes_round_to_512_and_addresses_are_multiples_of_it(child: Child) -> None:
    code = """
    total = m.mem_info()[1]
    a, b = m.malloc(1), m.malloc(513)
    print(a % 512, b % 512, total - m.mem_info()[0])
    """
    assert child(code) == "0 0 1536"


def test_blocks_of_random_sizes_never_overlap_and_leave_nothing(child: Child) -> None:
    code = """
    import random
    rng, live, total = random.Random(7), {}, m.mem_info()[1]
    for step in range(4000):
        if live and rng.random() < 0.5:
            address = rng.choice(list(live)); size, mark = live.pop(address)
            view = (ctypes.c_ubyte * size).from_address(address + m.arena().alias_distance)
            assert view[0] == view[size - 1] == view[size // 2] == mark, "overwritten"
            m.free(address)
        else:
            size = rng.choice([1, 512, 4096, 100_000, 2 << 20, 5_000_000]); address = m.malloc(size)
            mark = step % 251
            view = (ctypes.c_ubyte * size).from_address(address + m.arena().alias_distance)
            view[0] = view[size - 1] = view[size // 2] = mark
            live[address] = (size, mark)
    for address in live: m.free(address)
    print(total - m.mem_info()[0])
    """
    assert child(code) == "0"


def test_released_memory_goes_back_to_the_host_and_comes_back_zeroed(child: Child) -> None:
    code = """
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
    before = resident()
    p = m.malloc(64 << 20); m.memset(p, 7, 64 << 20); held = resident() - before
    m.free(p); left = resident() - before
    q = m.malloc(64 << 20)
    print(held > 60 << 20, left < 8 << 20, set(m.download(q, 1 << 20)))
    """
    assert child(code) == "True True {0}"


def test_wrong_frees_are_refused(child: Child) -> None:
    assert "freed twice" in child.fails("p = m.malloc(512); m.free(p); m.free(p)")
    assert "no allocation begins" in child.fails("p = m.malloc(1024); m.free(p + 512)")
    assert "is no device address" in child.fails("m.malloc(1); m.free(12345)")
    assert child("m.free(None)") == ""


def test_pointer_attributes_tell_device_pinned_and_plain_memory(child: Child) -> None:
    code = """
    m.set_device(2); d = m.malloc(4096); m.set_device(0)
    h = m.malloc_host(8192)
    plain = ctypes.create_string_buffer(8)
    for p in (d + 100, h + 8191, ctypes.addressof(plain)):
        a = m.attributes(p)
        print(a.type, a.device, a.device_pointer == p, a.host_pointer == p)
    m.free_host(h); print(m.attributes(h).type)
    """
    assert child(code).splitlines() == ["2 2 True False", "1 -1 False True", "0 -1 False False", "0"]


def test_attributes_of_an_address_that_is_not_allocated_are_an_error(child: Child) -> None:
    assert "isn't allocated" in child.fails("p = m.malloc(512); m.free(p); m.attributes(p)")


def test_copies_of_every_kind_move_the_bytes(child: Child) -> None:
    code = """
    text = b"bytes that travel"; n = len(text)
    a = m.malloc(4096); m.set_device(1); b = m.malloc(4096); c = m.malloc(4096)
    host = ctypes.create_string_buffer(text, n); back = ctypes.create_string_buffer(n)
    m.call("musaMemcpy", a, ctypes.addressof(host), n, m.H2D)
    m.call("musaMemcpyPeerAsync", b, 1, a, 0, n, None)
    m.call("musaMemcpyAsync", c + 512, b, n, m.D2D, None)
    m.call("musaMemcpy", ctypes.addressof(back), c + 512, n, m.D2H)
    print(back.raw == text)
    other = ctypes.create_string_buffer(n)
    m.call("musaMemcpy", ctypes.addressof(other), ctypes.addressof(back), n, m.H2H)
    print(other.raw == text)
    m.memset(c, 0x5A, 100); print(set(m.download(c, 100)) == {0x5A}, set(m.download(c + 100, 100)) == {0})
    """
    assert child(code).split() == ["True"] * 4


def test_default_kind_finds_the_direction_itself(child: Child) -> None:
    code = """
    a = m.malloc(512); host = ctypes.create_string_buffer(b"xyz", 3); back = ctypes.create_string_buffer(3)
    m.call("musaMemcpy", a, ctypes.addressof(host), 3, m.DEFAULT)
    m.call("musaMemcpy", ctypes.addressof(back), a, 3, m.DEFAULT)
    print(back.raw.decode())
    """
    assert child(code) == "xyz"


def test_copies_that_cannot_be_right_are_refused(child: Child) -> None:
    setup = "a = m.malloc(1024); buffer = ctypes.create_string_buffer(4096); h = ctypes.addressof(buffer);"
    copy = "m.call('musaMemcpy', {}, {}, {}, {})"
    cases = [
        (copy.format("a", "h", 16, "m.D2H"), "musaErrorInvalidMemcpyDirection", "make it musaMemcpyHostToDevice"),
        (copy.format("a", "h", 16, "9"), "musaErrorInvalidMemcpyDirection", "accepted: 0 .. 4"),
        (copy.format("a", "h", 1025, "m.H2D"), "musaErrorInvalidValue", "passes the end of its allocation"),
        (copy.format("a + 1000", "h", 100, "m.H2D"), "musaErrorInvalidValue", "passes the end"),
        (copy.format("a + (8 << 20)", "h", 1, "m.H2D"), "musaErrorInvalidValue", "isn't allocated"),
        (copy.format("a", "None", 16, "m.H2D"), "musaErrorInvalidValue", "the source is NULL"),
        ("m.memset(h, 0, 16)", "musaErrorInvalidValue", "is no device address"),
        ("m.memset(a, 0, 2048)", "musaErrorInvalidValue", "passes the end"),
        ("m.call('musaMemcpyPeerAsync', a, 1, a, 0, 16, None)", "musaErrorInvalidValue", "isn't on card musa:1"),
    ]
    for code, name, words in cases:
        text = child.fails(setup + code)
        assert text.startswith(name), code
        assert words in text, code


def test_shareable_memory_is_seen_through_its_file(child: Child) -> None:
    code = """
    import mmap
    p, fd = m.malloc_shareable(3 << 20)
    m.upload(p + 4096, b"shared")
    with mmap.mmap(fd, 3 << 20) as view:
        print(view[4096:4102].decode(), m.mem_info()[1] - m.mem_info()[0])
        view[0:2] = b"ok"
        print(m.download(p, 2).decode())
    m.free(p)
    print(m.mem_info()[1] - m.mem_info()[0])
    try:
        os.fstat(fd); print("fd still open")
    except OSError:
        print("closed")
    q = m.malloc(4 << 20); print(set(m.download(q, 4 << 20)))
    """
    assert child(code).split() == ["shared", str(3 * MIB), "ok", "0", "closed", "{0}"]


def test_another_process_maps_shareable_memory(child: Child) -> None:
    code = """
    import subprocess
    p, fd = m.malloc_shareable(2 << 20)
    writer = "import mmap,sys; v = mmap.mmap(int(sys.argv[1]), 2 << 20); v[10:14] = b'from'; v.flush()"
    subprocess.run([sys.executable, "-c", writer, str(fd)], pass_fds=[fd], check=True)
    print(m.download(p + 10, 4).decode())
    """
    assert child(code) == "from"


def test_peer_access_follows_the_rules_of_the_real_runtime(child: Child) -> None:
    code = """
    def can(a, b):
        answer = ctypes.c_int(-1)
        m.call("musaDeviceCanAccessPeer", ctypes.byref(answer), a, b)
        return answer.value
    print(can(0, 1), can(1, 1))
    on, off = ("Enable", (1, 0)), ("Disable", (1,))
    for name, arguments in (on, on, off, off, ("Enable", (0, 0))):
        print(m.error_name(getattr(m.lib, f"musaDevice{name}PeerAccess")(*arguments)))
    """
    assert child(code).split() == [
        "1", "0", "musaSuccess", "musaErrorPeerAccessAlreadyEnabled", "musaSuccess", "musaErrorPeerAccessNotEnabled",
        "musaErrorInvalidDevice",
    ]  # fmt: skip


def test_many_threads_allocate_at_once(child: Child) -> None:
    code = """
    import random, threading
    failures = []
    def work(seed):
        rng, live = random.Random(seed), []
        try:
            m.set_device(seed % 2)
            for _ in range(400):
                if len(live) > 10: m.free(live.pop(rng.randrange(len(live))))
                live.append(m.malloc(rng.choice([512, 70_000, 3 << 20])))
            for p in live: m.free(p)
        except Exception as error:
            failures.append(error)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    for device in (0, 1):
        m.set_device(device); free, total = m.mem_info(); print(total - free)
    print(failures)
    """
    assert child(code).split() == ["0", "0", "[]"]


def test_last_error_is_kept_for_the_thread_until_it_is_read(child: Child) -> None:
    code = """
    import threading
    m.lib.musaFree(77)
    other = []
    t = threading.Thread(target=lambda: other.append(m.lib.musaPeekAtLastError())); t.start(); t.join()
    print(other[0], m.lib.musaPeekAtLastError(), m.lib.musaGetLastError(), m.lib.musaGetLastError())
    print(m.error_name(2), m.lib.musaGetErrorString(2).decode(), m.error_name(12345))
    """
    assert child(code).splitlines() == ["0 1 1 0", "musaErrorMemoryAllocation out of memory unrecognized error code"]


def test_registered_memory_is_page_locked_until_it_is_unregistered(child: Child) -> None:
    code = """
    plain = ctypes.create_string_buffer(1 << 20); start = ctypes.addressof(plain)
    m.set_device(0); d = m.malloc(1 << 20)
    m.host_register(start, 1 << 20)
    print(m.attributes(start).type, m.attributes(start + (1 << 20) - 1).type)
    before = m.host_clock(); m.copy_async(d, start, 1 << 20, None); pinned = m.host_clock() - before
    m.host_unregister(start); print(m.attributes(start).type)
    before = m.host_clock(); m.copy_async(d, start, 1 << 20, None); pageable = m.host_clock() - before
    print(pageable > 3 * pinned)
    """
    assert child(code).split() == ["1", "1", "0", "True"]


def test_what_can_not_be_registered_is_refused(child: Child) -> None:
    code = """
    plain = ctypes.create_string_buffer(8192); start = ctypes.addressof(plain)
    m.set_device(0); d = m.malloc(4096); h = m.malloc_host(4096)
    m.host_register(start, 4096)
    for call in (
        lambda: m.host_register(start + 4095, 4096),
        lambda: m.host_register(start - 1, 2),
        lambda: m.host_register(h, 10),
        lambda: m.host_register(d, 10),
        lambda: m.host_register(start, 0),
        lambda: m.host_register(start + 4096, 10, 99),
        lambda: m.host_unregister(start + 1),
        lambda: m.host_unregister(h),
        lambda: m.free_host(start),
    ):
        try: call(); print("accepted")
        except m.MusaError as error: print(error.name)
    m.host_register(start + 4096, 4096)
    """
    assert child(code).split() == [
        *["musaErrorHostMemoryAlreadyRegistered"] * 3,
        *["musaErrorInvalidValue"] * 3,
        *["musaErrorHostMemoryNotRegistered"] * 2,
        "musaErrorInvalidValue",
    ]
