"""The drawings of the report, as SVG text: a time line per stream and the memory of a card over virtual time."""

from html import escape
from typing import Any

import numpy as np

from torch_musa_sim.cli._trace import COPY, FILL, Recording

WIDTH = 1080
_LEFT = 130
_LANE = 22
_MOST_BOXES = 3000  # beyond that a lane is drawn as shares of time, not as single launches
_COLUMNS = 400
# Told apart also without colours by their legend's order; chosen for colour-blind readers.
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#bbbbbb")


def duration(nanoseconds: float) -> str:
    """Virtual or wall time for a reader: "12.3 us"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return (
                f"{nanoseconds / size:.3g} {unit}" if nanoseconds < 100 * size else f"{nanoseconds / size:,.0f} {unit}"
            )
    return f"{nanoseconds:.0f} ns"


def size(amount: float) -> str:
    """Bytes for a reader: "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"


def ticks(span: int) -> list[int]:
    """Between 4 and 11 round times from 0 to `span` (10 or more, ns)."""
    step = 1
    while span // step > 10:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2
    return list(range(0, span + 1, step))


class _Axis:
    """Virtual time to pixels."""

    def __init__(self, began: int, ended: int) -> None:
        self.began = began
        self.span = max(1, ended - began)
        self.scale = (WIDTH - _LEFT - 10) / self.span

    def x(self, time: float) -> float:
        return _LEFT + (time - self.began) * self.scale

    def draw(self, height: int) -> str:
        parts = []
        for at in ticks(self.span):
            x = self.x(self.began + at)
            anchor = "start" if at == 0 else ("end" if x > WIDTH - 30 else "middle")
            parts.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height}" class="grid"/>')
            parts.append(f'<text x="{x:.1f}" y="{height + 14}" text-anchor="{anchor}">{duration(at)}</text>')
        return "".join(parts)


def _colours(recording: Recording) -> dict[int, str]:
    """The operators with the most time get a colour of their own, the rest share the last one."""
    work = recording.work()
    time = np.zeros(len(recording.names))
    np.add.at(time, work["name"], (work["end"] - work["start"]).astype(float))
    order = np.argsort(-time, kind="stable")
    return {int(name): _COLOURS[min(rank, len(_COLOURS) - 1)] for rank, name in enumerate(order)}


def legend(recording: Recording) -> str:
    """Which colour is which operator."""
    colours = _colours(recording)
    own = [(name, colour) for name, colour in colours.items() if colour != _COLOURS[-1]]
    parts = [f'<span><i style="background:{colour}"></i>{escape(recording.names[name])}</span>' for name, colour in own]
    if len(colours) > len(own):
        parts.append(f'<span><i style="background:{_COLOURS[-1]}"></i>others</span>')
    return f'<p class="legend">{"".join(parts)}</p>'


def time_line(recording: Recording) -> str:
    """One lane per card and stream; a box is one launch, or a column the share of time that was work."""
    work, axis = recording.work(), _Axis(recording.began_ns, recording.ended_ns)
    colours, parts = _colours(recording), []
    lanes = sorted({(int(device), int(stream)) for device, stream in zip(work["device"], work["stream"], strict=True)})
    for row, (device, stream) in enumerate(lanes):
        mine = work[(work["device"] == device) & (work["stream"] == stream)]
        name = "default stream" if stream == 0 else f"stream {stream}"
        y = row * _LANE
        parts.append(f'<text x="0" y="{y + 15}">musa:{device} {name}</text>')
        draw = _boxes if len(mine) <= _MOST_BOXES else _columns
        parts.append(draw(recording, mine, axis, colours, y))
    height = max(1, len(lanes)) * _LANE
    return _svg(height + 20, axis.draw(height) + "".join(parts), "time line of the streams")


def _boxes(recording: Recording, events: Any, axis: _Axis, colours: dict[int, str], y: int) -> str:
    parts = []
    for event in events:
        start, end, name = int(event["start"]), int(event["end"]), int(event["name"])
        kind = {COPY: "copy, ", FILL: "fill, "}.get(int(event["kind"]), "")
        about = f"{recording.names[name]}: {kind}{duration(end - start)}, {size(float(event['bytes']))}, "
        about += f"at {duration(start - recording.began_ns)}"
        width = max(0.4, (end - start) * axis.scale)
        parts.append(
            f'<rect x="{axis.x(start):.2f}" y="{y + 3}" width="{width:.2f}" height="{_LANE - 6}" '
            f'fill="{colours[name]}"><title>{escape(about)}</title></rect>'
        )
    return "".join(parts)


def _columns(recording: Recording, events: Any, axis: _Axis, colours: dict[int, str], y: int) -> str:
    """Each column is as high as its share of work, in the colour of the operator that took most of it."""
    edges = np.linspace(axis.began, axis.began + axis.span, _COLUMNS + 1)
    step, parts = axis.span / _COLUMNS, []
    place = np.clip(((events["start"] - axis.began) / step).astype(int), 0, _COLUMNS - 1)
    length = (events["end"] - events["start"]).astype(float)
    for column in np.unique(place):
        inside = place == column
        busy = min(1.0, length[inside].sum() / step)
        totals = np.bincount(events["name"][inside], weights=length[inside], minlength=len(recording.names))
        most = int(totals.argmax())
        height = max(0.5, busy * (_LANE - 6))
        about = f"{int(inside.sum())} launches, busy {busy:.0%}, most: {recording.names[most]}"
        parts.append(
            f'<rect x="{axis.x(edges[column]):.2f}" y="{y + _LANE - 3 - height:.2f}" width="{step * axis.scale:.2f}" '
            f'height="{height:.2f}" fill="{colours[most]}"><title>{escape(about)}</title></rect>'
        )
    return "".join(parts)


def memory_curve(recording: Recording, device: int, height: int = 120) -> str:
    """Bytes that tensors hold on a card, after each launch, over virtual time."""
    mine = recording.events[recording.events["device"] == device]
    axis = _Axis(recording.began_ns, recording.ended_ns)
    top = max(1, int(mine["allocated"].max()) if len(mine) else 1)
    order = np.argsort(mine["end"], kind="stable")
    times, held = mine["end"][order], mine["allocated"][order]
    if len(times) > 2 * _COLUMNS:  # the highest of each column stays
        starts = np.unique(np.linspace(0, len(times) - 1, _COLUMNS).astype(int))
        held, times = np.maximum.reduceat(held, starts), times[starts]
    points = [f"{axis.x(axis.began):.1f},{height}"]
    level = float(height)
    for time, amount in zip(times.tolist(), held.tolist(), strict=True):
        points.append(f"{axis.x(time):.1f},{level:.1f}")
        level = height - amount / top * (height - 10)
        points.append(f"{axis.x(time):.1f},{level:.1f}")
    points += [f"{axis.x(recording.ended_ns):.1f},{level:.1f}", f"{axis.x(recording.ended_ns):.1f},{height}"]
    labels = f'<text x="0" y="16">{size(top)}</text><text x="0" y="{height}">0</text>'
    shape = f'<polygon points="{" ".join(points)}" class="memory"/>'
    return _svg(height + 20, axis.draw(height) + labels + shape, f"memory of musa:{device}")


def _svg(height: int, content: str, title: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" role="img" aria-label="{escape(title)}">{content}</svg>'
