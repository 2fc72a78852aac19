"""`musa-sim doctor`: what is here, what is in force, what is wrong and how to mend it."""

import argparse
import json
from typing import Any

from torch_musa_sim.cli import _checks
from torch_musa_sim.cli._output import show

HELP = "check the installation, the settings and the host"
DESCRIPTION = (
    "Shows versions, cards, every setting and the host, then what is wrong and how to mend it. Works where torch or "
    "the device can't be loaded. Exit status 1 when something is wrong."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    report = _checks.examine()
    show(json.dumps(report, indent=2) if arguments.json else text(report))
    return 1 if report["problems"] else 0


def text(report: dict[str, Any]) -> str:
    """The report for a reader; problems come last, where a terminal shows them."""
    lines: list[str] = []
    for title, key in (("Versions", "versions"), ("Host", "host"), ("Cards", "cards")):
        lines += [title, *_pairs(report[key]), ""]
    lines.append("Settings")
    for setting in report["settings"]:
        value = setting["value"] or "(empty)"
        changed = "" if setting["value"] == setting["default"] else f"   [default {setting['default'] or 'empty'}]"
        lines += [f"  {setting['name']} = {value}{changed}", f"      {setting['about']}; {setting['accepted']}"]
    lines.append("")
    for note in report["notes"]:
        lines += _finding("note", note)
    for problem in report["problems"]:
        lines += _finding("PROBLEM", problem)
    count = len(report["problems"])
    lines.append("Nothing is wrong." if count == 0 else f"{count} problem{'s' if count > 1 else ''} found.")
    return "\n".join(lines)


def _pairs(values: dict[str, Any]) -> list[str]:
    width = max((len(name) for name in values), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in values.items()]


def _finding(kind: str, finding: dict[str, str]) -> list[str]:
    return [f"{kind}: {finding['what']}", f"    {finding['cure']}"]
