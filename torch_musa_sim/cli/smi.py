"""`musa-sim smi`: the cards at a glance, in a form of our own; `mthreads-gmi` has the real tool's."""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence

from torch_musa_sim.cli._errors import UsageError
from torch_musa_sim.cli._observe import Card, ObserveError, Runtime
from torch_musa_sim.cli._output import show

HELP = "show the cards: memory, utilisation, processes"
DESCRIPTION = (
    "Shows the simulated cards of this host with what all processes of the user hold and do. Utilisation is the share "
    "of the last one to two virtual seconds in which a card worked; power and temperature follow it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every figure, in bytes, watts and shares from 0 to 1")
    parser.add_argument("--watch", metavar="SECONDS", type=float, help="show again and again, until interrupted")


def run(arguments: argparse.Namespace) -> int:
    if arguments.watch is not None and not arguments.watch >= 0.1:
        raise UsageError(f"--watch {arguments.watch:g}: give at least 0.1 seconds")
    try:
        runtime = Runtime()
        while True:
            text = as_json(runtime.cards()) if arguments.json else overview(runtime.cards(), runtime.driver())
            if arguments.watch is not None and sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            show(text)
            if arguments.watch is None:
                return 0
            time.sleep(arguments.watch)
    except ObserveError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        return 0


def as_json(cards: Sequence[Card]) -> str:
    """All fields of each card with its processes."""
    return json.dumps([dataclasses.asdict(card) for card in cards], indent=2)


def overview(cards: Sequence[Card], driver: str) -> str:
    """A line a card with a bar of its memory, then a line a process."""
    models = sorted({card.name for card in cards})
    lines = [f"{len(cards)} x {', '.join(models)} (simulated), driver {driver}", ""]
    lines += ["card  memory                                      busy  memory busy      power   temp"]
    for card in cards:
        share = card.memory_used / card.memory if card.memory else 0.0
        full = min(20, round(share * 20)) or (1 if card.memory_used else 0)
        bar = "#" * full + "." * (20 - full)
        memory = f"{gib(card.memory_used)} of {gib(card.memory)} GiB"
        power = f"{card.power_w:.0f}/{card.power_limit_w:.0f} W"
        lines.append(
            f"{card.index:>4}  [{bar}] {memory:>20}  {card.busy:>4.0%}  {card.memory_busy:>11.0%}  {power:>9}  "
            f"{card.temperature_c:>3.0f} C"
        )
    lines += ["", "card      pid        memory  busy  command"]
    used = [(card, process) for card in cards for process in card.processes]
    for card, process in used:
        memory = f"{gib(process.memory)} GiB"
        lines.append(f"{card.index:>4}  {process.pid:>7}  {memory:>12}  {process.busy:>4.0%}  {process.command[:60]}")
    return "\n".join(lines if used else [*lines[:-1], "No process uses a card."])


def gib(amount: int) -> str:
    """Bytes in GiB with two decimals."""
    return f"{amount / (1 << 30):.2f}"
