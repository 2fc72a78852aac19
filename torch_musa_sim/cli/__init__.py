"""The command `musa-sim`. Each sub-command is one module of this package, named in `COMMANDS`.

Such a module is cheap to import (torch and the device are loaded by what needs them, inside `run`) and has:

    HELP: str                                             one line for `musa-sim --help`
    DESCRIPTION: str                                      what `musa-sim NAME --help` says first
    add_arguments(parser: argparse.ArgumentParser)        its options
    run(arguments: argparse.Namespace) -> int             the exit status
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from torch_musa_sim.cli._errors import UsageError

# In the order of `musa-sim --help`.
COMMANDS = ("run", "ops", "smi", "env", "doctor")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command; the chosen sub-command's `run` is the attribute `run` of what it parses."""
    parser = argparse.ArgumentParser(prog="musa-sim", description="Tools around the simulated musa device.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"torch_musa_sim.cli.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command with `argv` (default: the process's own arguments) and returns its exit status.

    0: done; 2: the command line or a file named on it is wrong (one line on stderr). `ops` and `run` return the exit
    status of the script that they ran.
    """
    try:
        arguments = build_parser().parse_args(argv)
        return int(arguments.run(arguments))
    except UsageError as error:
        print(f"musa-sim: {error}", file=sys.stderr)
        return 2
