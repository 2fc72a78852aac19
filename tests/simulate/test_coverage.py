"""torch_musa_sim.simulate.coverage: what a program did, and what a peer lacks of it."""

import json
import threading
from html.parser import HTMLParser

import pytest
import torch
import torch.nn.functional as F

from torch_musa_sim.simulate import coverage


def record(program):
    with coverage.Recorder() as recorder:
        program()
    return recorder.report("program")


def by_name(rows):
    return {row.name: row for row in rows}


def test_operators_of_card_and_host_are_told_apart():
    def program():
        x = torch.ones(8, 8)
        y = x @ x
        (y.to("musa") + 1).sum().item()

    report = record(program)
    card, host = by_name(report.operators), by_name(report.host)
    assert (card["aten::add.Tensor"].calls, card["aten::add.Tensor"].bytes) == (1, 512)
    assert (host["aten::mm"].calls, host["aten::mm"].bytes) == (1, 3 * 256)
    assert "aten::mm" not in card
    assert "aten::add.Tensor" not in host
    assert card["aten::add.Tensor"].device_ns > 0
    assert [(c.direction, c.calls, c.bytes) for c in report.copies] == [("host to card", 1, 256)]


def test_what_a_kernel_does_on_the_host_for_itself_is_not_the_programs():
    x = torch.randn(1, 4, 8, 8, device="musa")
    weight = torch.randn(4, 4, 3, 3, device="musa")

    def program():
        F.conv2d(x, weight)
        torch.linalg.solve(x[0, 0], x[0, 1])
        torch.unique(x)

    report = record(program)
    assert report.host == ()
    assert "aten::convolution_overrideable" in by_name(report.operators)


@pytest.mark.parametrize("threads", [1, 3])
def test_calls_of_every_thread_and_of_the_backward_pass_are_seen(threads):
    w = [torch.ones(4, 4, device="musa", requires_grad=True) for _ in range(threads)]

    def work(i):
        (w[i] @ w[i]).sum().backward()

    def program():
        workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    assert by_name(record(program).operators)["aten::mm"].calls == 3 * threads


def test_views_are_listed_without_a_launch():
    x = torch.ones(4, 4, device="musa")
    row = by_name(record(lambda: x.view(16)).operators)["aten::view"]
    assert (row.kernel, row.calls, row.bytes, row.device_ns) == ("metadata", 1, 0, 0)


def test_lacks_are_named_with_their_callers():
    x = torch.ones(4, 4, device="musa")

    def program():
        torch.nonzero_static(x, size=2)
        torch.nonzero_static(x, size=2)
        torch.special.spherical_bessel_j0(x)
        F.rms_norm(x, (4,))
        x.rsqrt()

    report = record(program)
    assert [(row.name, row.calls, row.callers) for row in report.missing] == [
        ("aten::nonzero_static", 2, ()),
        ("aten::special_spherical_bessel_j0", 1, ()),
    ]
    assert [(row.name, row.callers) for row in report.newer] == [("aten::_fused_rms_norm", ("aten::rms_norm",))]
    verdicts = {op.name: op.peer for op in report.operators}
    assert verdicts["aten::nonzero_static"] == "missing"
    assert verdicts["aten::rsqrt"] == "yes"


def test_an_operator_below_one_that_the_peer_has_is_not_missed():
    """fft_fft is composed of _fft_c2c here, and has a kernel of its own there."""
    x = torch.ones(8, device="musa", dtype=torch.complex64)
    report = record(lambda: torch.fft.fft(x))
    assert by_name(report.operators)["aten::_fft_c2c"].peer == "in aten::fft_fft"
    assert report.missing == ()


def test_composites_are_judged_by_what_they_called():
    x = torch.ones(4, 4, device="musa")
    report = record(lambda: (torch.cat([x, x]), F.linear(x, x), F.pixel_shuffle(x.view(1, 4, 2, 2), 2)))
    verdicts = {op.name: op.peer for op in report.operators}
    assert verdicts["aten::cat"] == verdicts["aten::pixel_shuffle"] == "composite"
    assert verdicts["aten::mm"] == "yes"
    assert report.missing == report.newer == ()


def test_operators_of_other_libraries_are_said_to_be_such():
    library = torch.library.Library("coverage_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("root(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")
    library.impl("root", lambda x: x.sqrt(), "PrivateUse1")
    x = torch.ones(4, device="musa")
    report = record(lambda: (torch.ops.coverage_test.twice(x), torch.ops.coverage_test.root(x)))
    verdicts = {op.name: op.peer for op in report.operators}
    assert verdicts["aten::add.Tensor"] == "yes"
    assert verdicts["coverage_test::root"] == "other library"
    assert report.missing == ()


def test_the_same_program_gives_the_same_report():
    x = torch.ones(64, 64, device="musa")

    def program():
        (x @ x).softmax(-1).sum().item()

    first, second = (record(program) for _ in range(2))
    assert coverage.as_json(first) == coverage.as_json(second)
    assert coverage.as_text(first) == coverage.as_text(second)


def test_a_stopped_recorder_sees_nothing_more():
    x = torch.ones(4, device="musa")
    with coverage.Recorder() as recorder:
        x.cpu().add(1)
    x.cpu().mul(1)
    assert set(by_name(recorder.report("program").host)) & {"aten::add.Tensor", "aten::mul.Tensor"} == {
        "aten::add.Tensor"
    }


def test_json_has_every_field():
    x = torch.ones(4, device="musa")
    report = record(lambda: x + x)
    plain = json.loads(coverage.as_json(report))
    assert set(plain) == {"program", "card", "peer", "operators", "missing", "newer", "host", "copies"}
    assert plain["operators"][0]["name"] == "aten::add.Tensor"
    assert plain["operators"][0]["device_ns"] == report.operators[0].device_ns


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_html_stands_alone_and_escapes_the_programs_name():
    x = torch.ones(4, device="musa")
    with coverage.Recorder() as recorder:
        torch.nonzero_static(x, size=2)
    text = coverage.as_html(recorder.report("<i>&.py"))
    page = Page()
    page.feed(text)
    assert page.open == []
    assert "Operators of <i>&.py" in page.words
    assert "aten::nonzero_static" in page.words
    assert 'class="missing"' in text
    assert not page.tags & {"script", "link", "img", "i"}
    assert "http" not in text


def test_a_program_without_the_card_says_so():
    text = coverage.as_text(record(lambda: torch.ones(3) + 1))
    assert "nothing ran" in text
    assert "Missing in torch_musa-2.7.1\nnone\n" in text
