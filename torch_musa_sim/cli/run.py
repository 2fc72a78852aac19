"""`musa-sim run`: an unmodified program under chosen cards, with a report of what the cards did."""

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable

from torch_musa_sim.cli import _device, _environment, _script
from torch_musa_sim.cli._errors import UsageError
from torch_musa_sim.cli._observe import LIBRARIES

HELP = "run a script on chosen cards"
DESCRIPTION = (
    "Runs an unmodified program as Python would, on the cards named by the options, and exits with its status. With "
    "--report a self-contained HTML page shows the course of the run, also of one that failed. With --cuda a program "
    "written for CUDA runs on musa."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _environment.add_card_options(parser)
    parser.add_argument("--report", metavar="FILE.html", help="write a page with time line, memory and operators")
    parser.add_argument("--cuda", action="store_true", help="let the program's torch.cuda and 'cuda' mean musa")
    parser.add_argument(
        "program", metavar="SCRIPT | MODULE:FUNCTION | -m MODULE", nargs="?", help="what to run; options come before it"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if bool(arguments.program) == bool(arguments.module):
        raise UsageError("name what to run: a script, module:function, or -m and a module")
    if arguments.report is not None:
        _check_writable(arguments.report)
    os.environ.update(_environment.chosen_settings(arguments))
    os.environ.update(_environment.search_paths())  # for its child processes
    _load_libraries()
    _device.register()
    mapping = None
    if arguments.cuda:
        from torch_musa_sim.cli import _cuda

        mapping = _cuda.activate()
    program = _program(arguments)
    if arguments.report is None:
        status = _script.run(program)
        _script.wait_for_threads()
    else:
        status = _reported(program, arguments)
    if mapping is not None:
        print(mapping.summary(), file=sys.stderr)
    return status


def _program(arguments: argparse.Namespace) -> Callable[[], object]:
    if arguments.module:
        return _script.load_module(arguments.module[0], arguments.module[1:])
    return _script.load(arguments.program, arguments.arguments)


def _reported(program: Callable[[], object], arguments: argparse.Namespace) -> int:
    from torch_musa_sim.cli import _report, _trace

    words = arguments.module or [arguments.program, *arguments.arguments]
    recorder = _trace.Recorder()
    began = time.perf_counter()
    status = _script.run(program)
    _script.wait_for_threads()
    wall = time.perf_counter() - began
    recording = recorder.finish()
    page = _report.page(recording, title=" ".join(map(str, words)), status=status, wall_seconds=wall)
    with open(arguments.report, "w", encoding="utf-8") as file:
        file.write(page)
    print(f"musa-sim: report written to {arguments.report}", file=sys.stderr)
    return status


def _check_writable(path: str) -> None:
    """Before the program runs for hours."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}") from None


def _load_libraries() -> None:
    """Under their real names, for programs that load them before they use the device."""
    for name in ("libmusart.so", "libmtml.so.2"):
        ctypes.CDLL(str(LIBRARIES / name))
