"""`musa-sim env`: the environment in which a process without torch finds the simulated stack."""

import argparse
import json
import shlex

from torch_musa_sim.cli import _environment
from torch_musa_sim.cli._output import show

HELP = "print the environment for programs that don't import torch"
DESCRIPTION = (
    "Prints shell commands that set LD_LIBRARY_PATH (libmusart.so, libmtml.so.2), PATH (mthreads-gmi, musaInfo) and "
    'the chosen cards: eval "$(musa-sim env --cards 2)"'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _environment.add_card_options(parser)
    parser.add_argument("--json", action="store_true", help="as a JSON object instead of shell commands")


def run(arguments: argparse.Namespace) -> int:
    variables = {**_environment.search_paths(), **_environment.chosen_settings(arguments)}
    if arguments.json:
        show(json.dumps(variables, indent=2))
    else:
        show("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))
    return 0
