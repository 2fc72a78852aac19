"""`musa-sim ops`: which operators a program runs, how, and which of them the real torch_musa lacks."""

import argparse
import sys
from pathlib import Path

from torch_musa_sim.cli import _device, _explain, _script
from torch_musa_sim.cli._errors import UsageError

HELP = "run a script and list its operators, and which the real torch_musa lacks"
DESCRIPTION = (
    "Runs an unmodified program as Python would, then lists its operators: native or bridged on the card, or on the "
    "host; calls, bytes, virtual time; and which of them torch_musa 2.7.1 lacks. Exits with the program's status."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", help="the report as JSON")
    form.add_argument("--html", dest="form", action="store_const", const="html", help="the report as one HTML file")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the report goes (default: to the output, after the program's own)"
    )
    parser.add_argument(
        "--explain",
        action=_explain.Explain,
        metavar="CALL",
        help="instead of running a script: which native kernel a call takes and why; as 'mm 16x4096x4096 bfloat16'",
    )
    parser.add_argument("program", metavar="SCRIPT | MODULE:FUNCTION", help="what to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")


def run(arguments: argparse.Namespace) -> int:
    output = _writable(arguments.output, arguments.program)
    _device.register()
    from torch_musa_sim.simulate import coverage

    with coverage.Recorder() as recorder:
        status = _script.run(_script.load(arguments.program, arguments.arguments))
        _script.wait_for_threads()
    render = {"json": coverage.as_json, "html": coverage.as_html, None: coverage.as_text}[arguments.form]
    text = render(recorder.report(Path(arguments.program).name))
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text)
    return status


def _writable(name: str | None, program: str) -> Path | None:
    """The file for the report, tried before the program runs, which may take long."""
    if name is None:
        return None
    path = Path(name).absolute()  # the program may change the working directory
    if path.exists() and Path(program).exists() and path.samefile(program):
        raise UsageError(f"--output {name} would overwrite the program")
    try:
        path.open("a").close()
    except OSError as error:
        raise UsageError(f"--output {name} can't be written: {error.strerror}") from None
    return path
