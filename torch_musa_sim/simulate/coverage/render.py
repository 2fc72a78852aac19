"""The three forms of a coverage report: text for a terminal, JSON for programs, one HTML file for people."""

import html
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from torch_musa_sim.simulate.coverage.record import CardOperator, CoverageReport, LackingOperator

_HOST_ROWS = 12  # of text; JSON and HTML have all

Table = tuple[str, str, Sequence[str], list[Sequence[str]]]  # title, remark, column names, rows
_NUMBERS = {"calls", "bytes", "virtual us"}


def as_text(report: CoverageReport) -> str:
    """Aligned tables, the longest virtual time first."""
    lines = [f"Operators of {report.program} on {report.card} (virtual), beside {report.peer}"]
    for title, remark, columns, rows in _tables(report, _HOST_ROWS):
        lines += ["", title] + ([remark] if remark else []) + _aligned(columns, rows)
    return "\n".join(lines) + "\n"


def as_json(report: CoverageReport) -> str:
    """The fields of `CoverageReport`, as one object."""
    return json.dumps(asdict(report), indent=1) + "\n"


def as_html(report: CoverageReport) -> str:
    """A page of its own: no script, nothing loaded from elsewhere."""
    title = html.escape(f"Operators of {report.program}")
    head = f"<p>On {html.escape(report.card)} (virtual), beside {html.escape(report.peer)}.</p>"
    style = (
        "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#222}"
        "table{border-collapse:collapse;margin:.5rem 0 2rem}th,td{padding:.2rem .9rem .2rem 0;text-align:left}"
        "th{border-bottom:1px solid #999}td{border-bottom:1px solid #e4e4e4}.n{text-align:right;"
        "font-variant-numeric:tabular-nums}.missing{background:#fde8e6}.newer{background:#fff5d6}"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{head}\n{_sections(report)}</body>\n</html>\n"
    )


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str]) -> str:
    """A table of plain texts. The columns named in `numbers` have class "n"; rows that the peer lacks have class
    "missing" or "newer"."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = [' class="n"' if name in numbers else "" for name in columns]
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    body = []
    for row in rows:
        kind = next((f' class="{cell}"' for cell in row if cell in ("missing", "newer")), "")
        body.append(f"<tr{kind}>{line('td', row)}</tr>\n")
    return f"<table>\n<thead><tr>{line('th', columns)}</tr></thead>\n<tbody>\n{''.join(body)}</tbody>\n</table>\n"


def _sections(report: CoverageReport) -> str:
    parts = []
    for title, remark, columns, rows in _tables(report, None):
        parts.append(f"<h2>{html.escape(title)}</h2>\n")
        if remark:
            parts.append(f"<p>{html.escape(remark)}</p>\n")
        if rows:
            parts.append(html_table(columns, rows, _NUMBERS))
    return "".join(parts)


def _tables(report: CoverageReport, host_rows: int | None) -> list[Table]:
    launched = [op for op in report.operators if op.kernel != "metadata"]
    tables: list[Table] = [
        (
            "On the card",
            _sum_of(launched),
            ("operator", "kernel", "calls", "bytes", "virtual us", report.peer),
            [
                (op.name, op.kernel, f"{op.calls:,}", f"{op.bytes:,}", f"{op.device_ns / 1e3:,.3f}", op.peer)
                for op in launched
            ],
        ),
        (
            "On the card, without a launch (sizes, strides, memory)",
            "",
            ("operator", "calls", report.peer),
            [(op.name, f"{op.calls:,}", op.peer) for op in report.operators if op.kernel == "metadata"],
        ),
        (
            f"Missing in {report.peer}",
            "none" if not report.missing else "Without a kernel there, and not composed of operators with one.",
            ("operator", "calls", "here", "called by"),
            list(_lacking_rows(report.missing)),
        ),
        (
            "Newer than torch 2.7.1, the torch of that stack",
            "none" if not report.newer else "What a program there calls instead can't be seen from here.",
            ("operator", "calls", "here", "called by"),
            list(_lacking_rows(report.newer)),
        ),
        (
            "On the host",
            "" if report.host else "none",
            ("operator", "calls", "bytes"),
            [(op.name, f"{op.calls:,}", f"{op.bytes:,}") for op in report.host[:host_rows]],
        ),
        (
            "Copies",
            "" if report.copies else "none",
            ("direction", "calls", "bytes"),
            [(copy.direction, f"{copy.calls:,}", f"{copy.bytes:,}") for copy in report.copies],
        ),
    ]
    if host_rows is not None and len(report.host) > host_rows:
        rest = report.host[host_rows:]
        tables[4][3].append(
            (f"and {len(rest)} more", f"{sum(op.calls for op in rest):,}", f"{sum(op.bytes for op in rest):,}")
        )
    return tables


def _sum_of(launched: Sequence[CardOperator]) -> str:
    if not launched:
        return "nothing ran"
    kinds = [f"{sum(op.kernel == kind for op in launched)} {kind}" for kind in ("native", "bridged")]
    time = sum(op.device_ns for op in launched) / 1e3
    return f"{len(launched)} operators ({', '.join(kinds)}), {sum(op.calls for op in launched):,} calls, {time:,.3f} us"


def _lacking_rows(operators: Iterable[LackingOperator]) -> Iterable[Sequence[str]]:
    for op in operators:
        yield op.name, f"{op.calls:,}", op.ran, ", ".join(op.callers) or "the program"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if name in _NUMBERS else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]
