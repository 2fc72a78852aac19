"""The command `mthreads-gmi`: the cards of this host in the format of Moore Threads' tool.

The layout follows what the real tool was seen to print, because scripts cut it into fields; figures are those of the
simulated cards (see _observe.py), of all processes of the user and scope.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch_musa_sim.cli._observe import Card, ObserveError, Process, Runtime
from torch_musa_sim.cli._output import show

VERSION = "2.4.1"  # of the tool whose layout this is
_MIB = 1 << 20
_RULE = "-" * 69
_FRAME = "+" + "-" * 67 + "+"


def mib(amount: int) -> str:
    """Whole MiB, as "81838MiB"."""
    return f"{amount // _MIB}MiB"


def percent(share: float) -> str:
    """A share of 0 to 1 as "37%"."""
    return f"{share * 100:.0f}%"


def table(cards: Sequence[Card], driver: str, now: time.struct_time) -> str:
    """What the command prints without options."""
    lines = [time.strftime("%a %b %d %H:%M:%S %Y", now), _RULE]
    lines += [f"    {'mthreads-gmi:' + VERSION:<29}Driver Version:{driver}", _RULE]
    lines += [_row("ID", "Name", "PCIe", "%GPU", "Mem")]
    lines += [_row("", "Device Type   Perf", "Pcie Lane Width", "Temp", "MPC Capable")]
    lines += [_last_row("ECC Mode"), _FRAME]
    for card in cards:
        memory = f"{mib(card.memory_used)}({mib(card.memory)})"
        lanes = f"{card.pci_lanes}x({card.pci_lanes}x)"
        lines += [_row(str(card.index), card.name, card.pci, percent(card.busy), memory)]
        lines += [_row("", "Physical      P0", lanes, f"{card.temperature_c:.0f}C", "NO")]
        lines += [_last_row(card.ecc), _FRAME]
    lines += ["", _RULE, "Processes:", f"{'ID':<5}{'PID':<10}{'Process name':<37}{'GPU Memory':>15}", f"{'Usage':>67}"]
    lines += [_FRAME]
    rows = [_process_row(card, process) for card in cards for process in card.processes]
    return "\n".join([*lines, *(rows or ["     No running processes found"]), _RULE])


def _row(number: str, name: str, bus: str, share: str, memory: str) -> str:
    return f"{number:<5}{name:<21}|{bus:<20}|{share:<6}{memory}"


def _last_row(ecc: str) -> str:
    return f"{'':<47}|{'':<6}{ecc}"


def _process_row(card: Card, process: Process) -> str:
    name = process.command if len(process.command) <= 36 else process.command[:33] + "..."
    return f"{card.index:<5}{process.pid:<10}{name:<37}{mib(process.memory):>15}"


def report(cards: Sequence[Card], driver: str, attached: int, now: time.struct_time) -> dict[str, Any]:
    """All figures under the names of the real tool's report. Every value is text."""
    return {
        "Timestamp": time.strftime("%a %b %d %H:%M:%S %Y", now),
        "Driver Version": driver,
        "Attached GPUs": str(attached),
        "GPU": [_report_card(card) for card in cards],
    }


def _report_card(card: Card) -> dict[str, Any]:
    bus, device = card.pci.split(":")[1], card.pci.split(":")[2].partition(".")[0]
    vendor, lanes, generation = f"0x{card.pci_vendor_id:04X}", f"{card.pci_lanes}x", str(card.pci_generation)
    pci = {
        "Bus": f"0x{bus}",
        "Device": f"0x{device}",
        "Vendor ID": vendor,
        "Device ID": f"0x{card.pci_device_id:04X}",
        "GPU Link Info": {
            "PCIe Generation": {"Max": generation, "Current": generation},
            "Link Width": {"Max": lanes, "Current": lanes},
        },
    }
    memory = {
        "Total": mib(card.memory),
        "Used": mib(card.memory_used),
        "Free": mib(max(0, card.memory - card.memory_used)),
    }
    processes = [
        {"Process ID": str(one.pid), "Name": one.command, "Used GPU Memory": mib(one.memory)} for one in card.processes
    ]
    return {
        "Index": str(card.index),
        "Bus ID": card.pci,
        "Product Name": card.name,
        "Product Brand": "MTT",
        "GPU UUID": card.uuid,
        "Serial Number": card.serial,
        "DeviceType": "Physical",
        "MPC Capable": "NO",
        "MTBios Version": "simulated",
        "ECC Mode": card.ecc,
        "PCI": pci,
        "FB Memory Usage": memory,
        "Utilization": {"Gpu": percent(card.busy), "Memory": percent(card.memory_busy)},
        "Temperature": {"GPU Current Temp": f"{card.temperature_c:.0f}C"},
        # Readers of the real tool's report look for this name with the blank at its end.
        "Power Readings": {"Power Draw ": f"{card.power_w:.2f}W", "Power Limit": f"{card.power_limit_w:.2f}W"},
        "Clocks": {"Graphics": f"{card.clock_mhz}MHz", "Memory": f"{card.memory_clock_mhz}MHz"},
        "Processes": processes,
    }


def report_text(content: dict[str, Any]) -> str:
    """`report` as the indented text of `-q`."""
    return "\n".join(["==============MTHREADS-GMI LOG==============", "", *_text_lines(content, 0)])


def _text_lines(content: dict[str, Any], depth: int) -> Iterator[str]:
    for name, value in content.items():
        if name == "GPU":
            for card in value:
                rest = {key: text for key, text in card.items() if key not in ("Index", "Bus ID")}
                yield ""
                yield f"GPU{card['Index']} {card['Bus ID']}"
                yield from _text_lines(rest, depth + 1)
            continue
        indent = "    " * depth
        if isinstance(value, dict):
            yield indent + name
            yield from _text_lines(value, depth + 1)
        elif isinstance(value, list):
            yield indent + name + ("" if value else f"{'':<{50 - len(indent) - len(name)}}:  None")
            for entry in value:
                yield from _text_lines(entry, depth + 1)
        else:
            yield f"{indent}{name:<{50 - len(indent)}}:  {value}"


# ---- --query-gpu -----------------------------------------------------------------------------------------------------

# Name -> (unit that `nounits` drops, value).
_FIELDS: dict[str, tuple[str, Callable[[Card, str], object]]] = {
    "driver_version": ("", lambda card, driver: driver),
    "index": ("", lambda card, driver: card.index),
    "name": ("", lambda card, driver: card.name),
    "uuid": ("", lambda card, driver: card.uuid),
    "serial": ("", lambda card, driver: card.serial),
    "pci.bus_id": ("", lambda card, driver: card.pci),
    "memory.total": ("MiB", lambda card, driver: card.memory // _MIB),
    "memory.used": ("MiB", lambda card, driver: card.memory_used // _MIB),
    "memory.free": ("MiB", lambda card, driver: max(0, card.memory - card.memory_used) // _MIB),
    "utilization.gpu": ("%", lambda card, driver: f"{card.busy * 100:.0f}"),
    "utilization.memory": ("%", lambda card, driver: f"{card.memory_busy * 100:.0f}"),
    "temperature.gpu": ("", lambda card, driver: f"{card.temperature_c:.0f}"),
    "power.draw": ("W", lambda card, driver: f"{card.power_w:.2f}"),
    "power.limit": ("W", lambda card, driver: f"{card.power_limit_w:.2f}"),
    "clocks.gr": ("MHz", lambda card, driver: card.clock_mhz),
    "clocks.mem": ("MHz", lambda card, driver: card.memory_clock_mhz),
    "count": ("", lambda card, driver: None),
}


def query(cards: Sequence[Card], driver: str, attached: int, fields: Sequence[str], options: Sequence[str]) -> str:
    """Comma-separated lines, one a card. ValueError for an unknown field or option."""
    for field in fields:
        if field not in _FIELDS:
            raise ValueError(f"--query-gpu: unknown field {field!r}; known: {', '.join(_FIELDS)}")
    for option in options:
        if option not in ("csv", "noheader", "nounits"):
            raise ValueError(f"--format: unknown option {option!r}; known: csv, noheader, nounits")
    lines = []
    with_units = "nounits" not in options
    if "noheader" not in options:
        units = {name: f" [{_FIELDS[name][0]}]" if _FIELDS[name][0] and with_units else "" for name in fields}
        lines.append(", ".join(name + units[name] for name in fields))
    for card in cards:
        values = []
        for name in fields:
            unit, value = _FIELDS[name]
            text = str(attached if name == "count" else value(card, driver))
            values.append(f"{text} {unit}" if unit and with_units else text)
        lines.append(", ".join(values))
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mthreads-gmi",
        description="The simulated cards of this host: memory, processes, utilisation. Without options: a table.",
        allow_abbrev=False,
    )
    parser.add_argument("-q", "--query", action="store_true", help="all figures as indented text")
    parser.add_argument("-i", "--id", metavar="CARD", help="only this card: index, UUID or PCI address")
    parser.add_argument("-L", "--list-gpus", action="store_true", help="one line a card")
    parser.add_argument("-j", "--json", action="store_true", help="the figures of -q as JSON")
    parser.add_argument("-cf", "--classic-format", action="store_true", help="the table, also the default")
    parser.add_argument("--query-gpu", metavar="FIELDS", help=f"comma-separated values: {', '.join(_FIELDS)}")
    parser.add_argument("--format", metavar="OPTIONS", default="csv", help="for --query-gpu: csv,noheader,nounits")
    parser.add_argument("-v", "--version", action="store_true", help="versions of tool and driver")
    return parser


def _split(argv: Sequence[str]) -> list[str]:
    """Some clients pass "-q -i 0" as one argument."""
    return [part for text in argv for part in (shlex.split(text) if text.startswith("-") and " " in text else [text])]


def _chosen(cards: Sequence[Card], wanted: str | None) -> list[Card]:
    if wanted is None:
        return list(cards)
    found = [card for card in cards if wanted in (str(card.index), card.uuid, card.pci)]
    if not found:
        raise ValueError(f"-i {wanted}: there is no such card, {len(cards)} are attached (0 .. {len(cards) - 1})")
    return found


def _output(options: argparse.Namespace, runtime: Runtime) -> str:
    driver, now = runtime.driver(), time.localtime()
    if options.version:
        return f"mthreads-gmi:{VERSION}\nDriver Version:{driver}"
    every = runtime.cards()
    cards = _chosen(every, options.id)
    if options.query_gpu is not None:
        fields = [name.strip() for name in options.query_gpu.split(",")]
        return query(cards, driver, len(every), fields, [name.strip() for name in options.format.split(",")])
    if options.list_gpus:
        return "\n".join(f"GPU {card.index} : {card.name} (UUID: {card.uuid})" for card in cards)
    if options.json:
        return json.dumps(report(cards, driver, len(every), now), indent=4)
    if options.query:
        return report_text(report(cards, driver, len(every), now))
    return table(cards, driver, now)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what the options ask for. Returns 0, or 1 with one line on stderr."""
    options = _parser().parse_args(_split(sys.argv[1:] if argv is None else argv))
    try:
        show(_output(options, Runtime()))
    except (ObserveError, ValueError) as error:
        print(f"mthreads-gmi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
