"""A wrong environment value is one clear error at first use, never at load."""

from __future__ import annotations

import pytest
from musart_child import Child

REFUSED = [
    ("CARDS", "0", "1 .. 512"),
    ("CARDS", "513", "1 .. 512"),
    ("CARDS", "-1", "1 .. 512"),
    ("CARDS", "eight", "1 .. 512"),
    ("CARDS", "8 cards", "1 .. 512"),
    ("MEMORY", "-1GiB", "2MiB .. 1TiB"),
    ("MEMORY", "0", "2MiB .. 1TiB"),
    ("MEMORY", "1MiB", "2MiB .. 1TiB"),
    ("MEMORY", "4PiB", "2MiB .. 1TiB"),
    ("MEMORY", "2TiB", "2MiB .. 1TiB"),
    ("MEMORY", "80G", "2MiB .. 1TiB"),
    ("MEMORY", "GiB", "2MiB .. 1TiB"),
    ("HOST_MEMORY", "plenty", "overcommit"),
    ("HOST_MEMORY", "0", "overcommit"),
    ("SCOPE", "a/b", "letters"),
    ("SCOPE", "x" * 65, "letters"),
    ("STRICT", "yes", "0 | 1"),
    ("FAULT_REPORT", "2", "0 | 1"),
    ("NATIVE", "add,,mm", "names of operators"),
    ("NATIVE", "add mm", "names of operators"),
    ("NATIVE", "add,-mm", "names of operators"),
    ("NATIVE", "-", "names of operators"),
    ("ISA", "sse2", "best | portable | avx2 | avx512"),
    ("MUSA_LAUNCH_BLOCKING", "true", "0 | 1"),
]


@pytest.mark.parametrize(("name", "value", "accepted"), REFUSED)
def test_wrong_value_is_refused_at_first_use_with_what_is_accepted(
    child: Child, name: str, value: str, accepted: str
) -> None:
    text = child.fails("print('loaded'); m.call('musaSimInit')", **{name: value})
    assert text.startswith("musaErrorInvalidValue: ")
    assert value in text
    assert accepted in text
    assert name in text


def test_wrong_value_is_also_reported_by_the_device_count_and_the_check(child: Child) -> None:
    assert "CARDS=none" in child.fails("m.device_count()", CARDS="none")
    assert "CARDS=none" in child.fails("m.call('musaSimCheckSettings')", CARDS="none")


def test_unknown_card_model_names_the_known_ones(child: Child) -> None:
    text = child.fails("m.call('musaSimInit')", CARD="S9000")
    assert "S9000" in text
    assert "S4000, S5000, S80" in text


def test_failed_first_use_can_be_repeated_after_the_value_was_repaired(child: Child) -> None:
    code = """
    libc = ctypes.CDLL(None)
    try:
        m.malloc(512)
    except m.MusaError as error:
        print(error.name)
    libc.setenv(b"TORCH_MUSA_SIM_CARDS", b"3", 1)
    m.malloc(512)
    print(m.device_count())
    """
    assert child(code, CARDS="x").split() == ["musaErrorInvalidValue", "3"]


def test_values_are_frozen_by_the_first_use(child: Child) -> None:
    code = """
    libc = ctypes.CDLL(None)
    libc.setenv(b"TORCH_MUSA_SIM_CARDS", b"2", 1)
    print(m.device_count(), m.setting("TORCH_MUSA_SIM_CARDS"))
    m.call("musaSimInit")
    libc.setenv(b"TORCH_MUSA_SIM_CARDS", b"5", 1)
    print(m.device_count(), m.setting("TORCH_MUSA_SIM_CARDS"))
    """
    assert child(code).split() == ["2", "2", "2", "2"]


def test_misspelt_variable_is_pointed_out_once(child: Child) -> None:
    status, _, err = child.finish("m.call('musaSimInit'); m.malloc(512)", CARD_COUNT="4")
    assert status == 0
    assert err.count("TORCH_MUSA_SIM_CARD_COUNT is not known") == 1


def test_every_setting_is_listed_and_its_default_is_accepted(child: Child) -> None:
    code = """
    for i in range(m.lib.musaSimSettingCount()):
        row = m.lib.musaSimSettingAt(i).contents
        assert row.accepted and row.about, row.name
        if row.name != b"TORCH_MUSA_SIM_CARD_DIR":  # of a library in a build folder it may be needed
            ctypes.CDLL(None).setenv(row.name, row.default, 1)
        print(row.name.decode())
    m.call("musaSimCheckSettings")
    assert not m.lib.musaSimSettingAt(m.lib.musaSimSettingCount())
    """
    names = child(code).split()
    assert "MUSA_VISIBLE_DEVICES" in names
    assert "TORCH_MUSA_SIM_HOST_MEMORY" in names
    assert len(names) == len(set(names)) >= 12


def test_typed_reads(child: Child) -> None:
    code = """
    print(m.lib.musaSimSettingInt(b"TORCH_MUSA_SIM_CARDS"), m.lib.musaSimSettingFlag(b"TORCH_MUSA_SIM_STRICT"))
    print(m.lib.musaSimSettingBytes(b"TORCH_MUSA_SIM_MEMORY"), m.lib.musaSimSettingBytes(b"TORCH_MUSA_SIM_HOST_MEMORY"))
    print(m.setting("TORCH_MUSA_SIM_NO_SUCH"))
    """
    assert child(code, STRICT="1", MEMORY="1.5GiB").split() == ["8", "1", str(3 << 29), "-1", "None"]


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, "8"), ("", "0"), (" ", "0"), ("all", "8"), ("3", "1"), ("1,0", "2"), (" 2 , 5 ", "2"), ("-1", "0")],
)
def test_visible_devices_select_cards(child: Child, visible: str | None, count: str) -> None:
    assert child("print(m.device_count())", MUSA_VISIBLE_DEVICES=visible) == count


def test_visible_devices_reorder_the_cards(child: Child) -> None:
    code = "print([m.properties(i).uuid[15] for i in range(m.device_count())])"
    assert child(code, MUSA_VISIBLE_DEVICES="5,0,2") == "[5, 0, 2]"


def test_index_out_of_range_ends_the_list_with_one_warning(child: Child) -> None:
    code = "print(m.device_count()); m.call('musaSimInit'); print(m.device_count())"
    status, out, err = child.finish(code, MUSA_VISIBLE_DEVICES="1,0,9,2", CARDS="4")
    assert (status, out.split()) == (0, ["2", "2"])
    assert len(err.splitlines()) == 1
    assert "no card 9" in err
    assert "0 .. 3" in err


@pytest.mark.parametrize(
    ("visible", "named"), [("0,1,0", "0 twice"), ("0,a", "'a'"), ("0,,1", "''"), ("GPU-1", "'GPU-1'")]
)
def test_duplicate_or_unparsable_index_is_an_error(child: Child, visible: str, named: str) -> None:
    text = child.fails("m.device_count()", MUSA_VISIBLE_DEVICES=visible)
    assert text.startswith("musaErrorInvalidValue: MUSA_VISIBLE_DEVICES=")
    assert named in text


def test_hidden_cards_make_every_use_say_so(child: Child) -> None:
    text = child.fails("m.malloc(512)", MUSA_VISIBLE_DEVICES="")
    assert text.startswith("musaErrorNoDevice: ")
    assert "MUSA_VISIBLE_DEVICES" in text


def test_device_index_out_of_range_names_the_valid_ones(child: Child) -> None:
    for call in ("m.set_device(3)", "m.set_device(-1)", "m.properties(3)", "m.default_stream(99)"):
        text = child.fails(call, CARDS="3")
        assert text.startswith("musaErrorInvalidDevice: ")
        assert "0 .. 2" in text


def test_current_device_belongs_to_the_thread(child: Child) -> None:
    code = """
    import threading
    def current():
        device = ctypes.c_int(-1)
        m.call("musaGetDevice", ctypes.byref(device))
        return device.value
    m.set_device(2)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(current()))
    thread.start(); thread.join()
    print(current(), seen[0])
    """
    assert child(code) == "2 0"
