"""Every test process has cards of its own; the counts of the operator suite are added up over the processes."""

import json
import os
import sys
from typing import Any

import pytest

# What other processes of this user hold must not change what a test sees.
os.environ["TORCH_MUSA_SIM_SCOPE"] = f"pytest.{os.getpid()}"


def _tally() -> Any:
    """The operator suite's module of counts; None in a run without that suite."""
    return sys.modules.get("ops.tally")


def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = _tally()
    if counts is None:
        return
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ops_tally"] = json.dumps(counts.TALLY.plain())
    elif counts.TALLY.cpu and counts.TALLY.percent() < counts.REQUIRED_PERCENT:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if plain := getattr(node, "workeroutput", {}).get("ops_tally"):
        from ops.tally import TALLY  # the process that only hands out tests hasn't loaded it

        TALLY.merge(json.loads(plain))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts = _tally()
    if counts is None or not counts.TALLY.cpu:
        return
    terminalreporter.section("operator coverage")
    for line in counts.TALLY.report():
        terminalreporter.write_line(line)
    if counts.TALLY.percent() < counts.REQUIRED_PERCENT:
        terminalreporter.write_line(f"below the required {counts.REQUIRED_PERCENT} %: failed", red=True)
