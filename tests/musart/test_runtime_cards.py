"""Card files: one copy, the same figures in C++ and Python, each with trust and source."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from musart_child import CARDS, Child


def load_reader():  # type: ignore[no-untyped-def]
    """The Python reader without its package, whose import would bring torch."""
    spec = importlib.util.spec_from_file_location("card_reader", CARDS / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["card_reader"] = module
    spec.loader.exec_module(module)
    return module


reader = load_reader()
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4", "int32")


def test_three_models_exist() -> None:
    assert reader.card_models() == ["S4000", "S5000", "S80"]


@pytest.mark.parametrize("model", ["S80", "S4000", "S5000"])
def test_cpp_and_python_read_the_same_figures(child: Child, model: str) -> None:
    code = """
    c, p = m.card(), m.properties()
    print(c.model.decode(), p.name.decode(), c.memory, p.total_memory, p.major, p.minor, p.multiprocessors, sep="|")
    print(*c.peak, c.bandwidth, c.host_link, c.host_link_back, c.host_link_pageable, c.host_link_pageable_back,
          c.card_link, sep="|")
    print(c.launch_ns, c.sync_ns, c.alloc_ns, c.poll_ns, c.kernel_ns, c.copy_ns, sep="|")
    """
    names, rates, times = (line.split("|") for line in child(code, CARD=model).splitlines())
    figures = reader.read_card(model)
    keys = ("model", "name", "memory", "memory", "capability.major", "capability.minor", "multiprocessors")
    assert names == [figures[key].value for key in keys]
    links = ("to_card", "to_host", "pageable_to_card", "pageable_to_host")
    rate_keys = [f"peak.{t}" for t in DTYPES] + ["bandwidth"] + [f"host_link.{k}" for k in links] + ["card_link"]
    assert [float(rate) for rate in rates] == [reader.effective_rate(figures, key) for key in rate_keys]
    time_keys = ("launch_ns", "sync_ns", "alloc_ns", "poll_ns", "kernel_ns", "copy_ns")
    assert times == [figures[key].value for key in time_keys]


def test_s5000_is_what_clients_expect(child: Child) -> None:
    code = "p = m.properties(); print(p.name.decode(), p.major, p.minor, p.total_memory, p.warp_size)"
    assert child(code) == "MTT S5000 3 1 85813358592 32"


def test_model_name_in_lower_case_and_path_of_a_file(child: Child, round_card: str) -> None:
    assert child("print(m.card().model.decode())", CARD="s4000") == "S4000"
    assert child("print(m.card().launch_ns)", CARD=round_card) == "1000"


def test_memory_setting_overrides_the_model(child: Child) -> None:
    assert child("print(m.properties().total_memory, m.mem_info()[1])", MEMORY="3GiB") == f"{3 << 30} {3 << 30}"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("launch_ns = 1000  # assumed: test", "launch_ns = 1000"), "line"),
        (("launch_ns = 1000  # assumed: test", "launch_ns = 1000  # guessed: test"), "vendor|measured|assumed"),
        (("launch_ns = 1000  # assumed: test", ""), "launch_ns is missing"),
        (("launch_ns = 1000", "launch_ns = fast"), "launch_ns = fast"),
        (("launch_ns = 1000", "launch_ns = -5"), "launch_ns = -5"),
        (("launch_ns = 1000", "lunch_ns = 1000"), "launch_ns is missing"),
        (("copy_ns = 3000", "copy_ns = 3000 # assumed: test\ncopy_ns = 3000"), "given twice"),
        (("bandwidth.efficiency = 1 ", "bandwidth.efficiency = 1.5 "), "bandwidth.efficiency"),
    ],
)
def test_malformed_card_file_is_refused(child: Child, round_card: str, change: tuple[str, str], complaint: str) -> None:
    text = Path(round_card).read_text()
    assert change[0] in text
    Path(round_card).write_text(text.replace(change[0], change[1]))
    message = child.fails("m.call('musaSimInit')", CARD=round_card)
    assert "round.card" in message
    assert complaint in message


def test_unknown_key_is_refused(child: Child, round_card: str) -> None:
    with open(round_card, "a") as file:
        file.write("\ncolour = 3  # assumed: test\n")
    assert "colour is not a known key" in child.fails("m.call('musaSimInit')", CARD=round_card)


def test_missing_card_file_is_named(child: Child) -> None:
    assert "/no/such.card" in child.fails("m.call('musaSimInit')", CARD="/no/such.card")


def test_python_reader_refuses_what_cpp_refuses(tmp_path: Path) -> None:
    file = tmp_path / "x.card"
    file.write_text("a = 1  # vendor: b\nc = 2\n")
    with pytest.raises(ValueError, match="line 2"):
        reader.read_card(file)
    with pytest.raises(ValueError, match="S4000, S5000, S80"):
        reader.read_card("S1")
