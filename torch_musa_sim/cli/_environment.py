"""The environment of a program that runs on chosen cards: settings, and where it finds our libraries and tools."""

import argparse
import os
import sys
from pathlib import Path

from torch_musa_sim.cli._errors import UsageError
from torch_musa_sim.cli._observe import LIBRARIES, ObserveError, Runtime


def add_card_options(parser: argparse.ArgumentParser) -> None:
    """--cards, --card, --memory, --strict: the settings that one most often wants to choose for one program."""
    parser.add_argument("--cards", metavar="N", help="number of simulated cards (TORCH_MUSA_SIM_CARDS)")
    parser.add_argument("--card", metavar="MODEL", help="S80, S4000, S5000 or the path of a card file")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each card, as 80GiB or 256MiB")
    parser.add_argument("--strict", action="store_true", help="refuse what hardware refuses, report races")


def chosen_settings(options: argparse.Namespace) -> dict[str, str]:
    """The environment variables that the options of `add_card_options` stand for. UsageError for a wrong value."""
    settings = {
        "TORCH_MUSA_SIM_CARDS": options.cards,
        "TORCH_MUSA_SIM_CARD": options.card,
        "TORCH_MUSA_SIM_MEMORY": options.memory,
        "TORCH_MUSA_SIM_STRICT": "1" if options.strict else None,
    }
    chosen = {name: value for name, value in settings.items() if value is not None}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        Runtime().check_settings()
    except ObserveError as error:
        raise UsageError(str(error)) from None
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return chosen


def search_paths() -> dict[str, str]:
    """LD_LIBRARY_PATH and PATH with our libraries and commands in front, each folder once."""
    return {
        "LD_LIBRARY_PATH": _in_front(str(LIBRARIES), os.environ.get("LD_LIBRARY_PATH", "")),
        # Not resolved: in a virtual environment the interpreter is a link, and the commands lie beside the link.
        "PATH": _in_front(str(Path(sys.executable).parent), os.environ.get("PATH", "")),
    }


def _in_front(folder: str, path: str) -> str:
    return os.pathsep.join([folder, *(part for part in path.split(os.pathsep) if part and part != folder)])
