"""The page of `musa-sim run --report`."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from torch_musa_sim.cli import _figures, _report, _trace

WORK = """
    import sys, torch
    a = torch.ones(256, 256, device="musa")
    side = torch.musa.Stream()
    with torch.musa.stream(side):
        b = a @ a
    torch.musa.synchronize()
    big = torch.empty(8 << 20, device="musa:1").fill_(1)
    del big
    c = torch.ones(1, device="musa:1").cpu()
"""


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what they hold."""

    VOID = ("meta", "line", "rect", "polygon")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_streams_memory_and_operators(musa_sim, script, tmp_path):
    musa_sim("run", "--cards", "2", "--report", "out.html", script(WORK))
    text = (tmp_path / "out.html").read_text()
    page = Page(text)
    assert not re.findall(r'(?:src|href)="|@import|url\(', text)  # needs nothing but itself
    assert "musa:0 default stream" in page.text
    assert re.search(r"musa:0 stream \d+", page.text)
    assert "musa:1 default stream" in page.text
    assert "aten::mm" in page.text
    assert re.search(r"musa:1 MTT S5000: at most 32(\.0\d)? MiB of", page.text)
    assert "exit status0" in page.text
    assert len([1 for tag, _ in page.tags if tag == "svg"]) == 3  # the time line and the memory of two cards


def test_the_page_is_written_when_the_program_fails(musa_sim, script, tmp_path):
    done = musa_sim("run", "--report", "out.html", script(WORK + "    raise ValueError('on purpose')\n"), check=False)
    assert done.returncode == 1
    assert "ValueError: on purpose" in done.stderr
    assert "musa-sim: report written to out.html" in done.stderr
    assert '<span class="failed">1</span>' in (tmp_path / "out.html").read_text()


def test_a_program_that_uses_no_card_gets_a_page_that_says_so(musa_sim, script, tmp_path):
    musa_sim("run", "--report", "out.html", script("print('<&>')"))
    assert "The program did nothing on a card." in Page((tmp_path / "out.html").read_text()).text


# ---- the drawings ----------------------------------------------------------------------------------------------------


def recording(rows, names=("aten::mm", "aten::add")):
    """`rows` of (start, end, allocated, stream, name, device), times in ns."""
    events = np.zeros(len(rows), _trace._EVENT)
    for event, (start, end, allocated, stream, name, device) in zip(events, rows, strict=True):
        event["start"], event["end"], event["allocated"] = start, end, allocated
        event["stream"], event["name"], event["device"] = stream, name, device
    cards = [
        _trace.CardSummary(device, "MTT S5000", 1 << 30, 2048, 4096) for device in sorted({row[5] for row in rows})
    ]
    operators = [
        _trace.Operator("aten::mm", "bridged", 2, 1024, 900),
        _trace.Operator("aten::add", "native", 1, 8, 100),
    ]
    return _trace.Recording(list(names), events, 0, 0, 1000, cards, operators)


def test_a_box_lies_where_its_launch_ran():
    drawn = Page(_figures.time_line(recording([(250, 750, 0, 0, 0, 0)])))
    boxes = [attributes for tag, attributes in drawn.tags if tag == "rect"]
    assert len(boxes) == 1
    usable = _figures.WIDTH - 140
    assert float(boxes[0]["x"]) == pytest.approx(130 + 0.25 * usable, abs=0.01)
    assert float(boxes[0]["width"]) == pytest.approx(0.5 * usable, abs=0.01)
    assert "aten::mm: 500 ns" in drawn.text


def test_many_launches_become_shares_of_time():
    rows = [(i * 0.1, i * 0.1 + 0.05, 0, 0, i % 2, 0) for i in range(10_000)]
    rows = [(int(start * 100), int(end * 100), *rest) for start, end, *rest in rows]
    many = recording(rows)
    many = _trace.Recording(many.names, many.events, 0, 0, 100_000, many.cards, many.operators)
    text = _figures.time_line(many)
    assert text.count("<rect") == 400
    assert "25 launches, busy 50%" in text
    assert len(text) < 200_000


def test_the_memory_curve_keeps_its_peak_when_it_is_thinned_out():
    rows = [(i, i, 4096 if i == 3333 else 1024, 0, 0, 0) for i in range(10_000)]
    curve = _figures.memory_curve(recording(rows), 0)
    assert "4 KiB" in curve
    points = re.search(r'points="([^"]*)"', curve)
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert min(heights) == pytest.approx(10, abs=0.1)
    assert len(heights) < 1000


def test_overlapping_streams_count_once_in_the_summary():
    page = _report.page(recording([(0, 600, 0, 0, 0, 0), (300, 800, 0, 1, 1, 0)]), "x & y", 0, 1.5)
    text = Page(page).text
    assert "busy800 ns (80%)" in text
    assert "x & y" in text
    assert "wall time on this host1.5 s" in text
    assert "90.0%" in text


@pytest.mark.parametrize(
    ("span", "last", "number"), [(10, 10, 11), (11, 10, 6), (49, 45, 10), (6_540_000, 6_000_000, 7), (10**9, 10**9, 11)]
)
def test_ticks_are_round(span, last, number):
    times = _figures.ticks(span)
    assert (times[0], times[-1], len(times)) == (0, last, number)


@pytest.mark.parametrize(("amount", "text"), [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (250_000_000, "250 ms")])
def test_durations_are_readable(amount, text):
    assert _figures.duration(amount) == text
