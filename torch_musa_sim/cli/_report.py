"""The page that `run --report` writes: one HTML file that needs nothing else."""

from html import escape

from torch_musa_sim.cli import _figures
from torch_musa_sim.cli._figures import duration, size
from torch_musa_sim.cli._trace import KERNEL, Recording
from torch_musa_sim.simulate.coverage import html_table

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em; color: #1a1a1a; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; } code { background: #f0f0f0; padding: 1px 4px; }
table { border-collapse: collapse; } td, th { padding: 3px 12px 3px 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } tbody tr:nth-child(odd) { background: #f6f6f6; }
svg { font: 11px system-ui, sans-serif; } .grid { stroke: #ddd; } .memory { fill: #88aacc; stroke: #4477aa; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; }
.failed { color: #b00020; font-weight: bold; } .note { color: #555; }
"""


def page(recording: Recording, title: str, status: int, wall_seconds: float) -> str:
    """The whole page. `title`: the command line of the program; `status`: its exit status."""
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style></head>',
        "<body>",
        f"<h1>Run of <code>{escape(title)}</code></h1>",
        _summary(recording, status, wall_seconds),
    ]
    if len(recording.work()):
        parts += [
            "<h2>Time line</h2>",
            _time_note(recording),
            _figures.time_line(recording),
            _figures.legend(recording),
        ]
        parts += ["<h2>Memory</h2>", '<p class="note">What tensors hold, looked at after each launch.</p>']
        for card in recording.cards:
            share = card.peak_allocated / card.capacity if card.capacity else 0.0
            parts.append(
                f"<p>musa:{card.index} {escape(card.name)}: at most {size(card.peak_allocated)} of "
                f"{size(card.capacity)} ({share:.1%}), reserved {size(card.peak_reserved)}</p>"
            )
            parts.append(_figures.memory_curve(recording, card.index))
        parts += ["<h2>Operators</h2>", _operators(recording)]
    else:
        parts.append("<p>The program did nothing on a card.</p>")
    parts.append("</body></html>")
    return "\n".join(parts)


def _summary(recording: Recording, status: int, wall_seconds: float) -> str:
    work = recording.work()
    virtual = recording.ended_ns - recording.began_ns
    busy = _busy_by_card(recording)
    outcome = "0" if status == 0 else f'<span class="failed">{status}</span>'
    rows = [
        ("exit status", outcome),
        ("wall time on this host", duration(wall_seconds * 1e9)),
        ("virtual time", duration(virtual)),
        (
            "kernels, copies and fills",
            f"{int((work['kind'] == KERNEL).sum()):,} + {int((work['kind'] != KERNEL).sum()):,}",
        ),
    ]
    for card in recording.cards:
        share = busy[card.index] / virtual if virtual else 0.0
        rows.append((f"musa:{card.index} {escape(card.name)} busy", f"{duration(busy[card.index])} ({share:.0%})"))
    cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def _busy_by_card(recording: Recording) -> dict[int, int]:
    """Time in which something ran on a card; what overlaps on several streams counts once."""
    result = {}
    for card in recording.cards:
        work = recording.work()
        mine = work[work["device"] == card.index]
        end, total = 0, 0
        for start, stop in sorted(zip(mine["start"].tolist(), mine["end"].tolist(), strict=True)):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
        result[card.index] = total
    return result


def _time_note(recording: Recording) -> str:
    note = "Virtual time: what the cards would need, by the cost model; the host's speed has no part in it."
    if recording.dropped:
        note += f" The last {recording.dropped:,} events were not recorded."
    return f'<p class="note">{note}</p>'


def _operators(recording: Recording) -> str:
    total = sum(op.device_ns for op in recording.operators) or 1
    rows = [
        (
            op.name,
            op.kernel,
            f"{op.calls:,}",
            size(op.bytes),
            duration(op.device_ns),
            f"{op.device_ns / total:.1%}",
            duration(op.device_ns / op.calls) if op.calls else "",
        )
        for op in recording.operators
    ]
    columns = ("operator", "kernel", "calls", "bytes", "virtual time", "share of it", "one call")
    return html_table(columns, rows, numbers=columns[2:])
