"""Order, counts and verdict of the operator suite."""

import json
from typing import Any

import pytest

from .device import DEVICE
from .tally import REQUIRED_PERCENT, TALLY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # torch's generator walks sets of dtypes; parallel workers must see one order.
    ours = [index for index, item in enumerate(items) if "tests/ops/" in str(item.path)]
    for index, item in zip(ours, sorted((items[i] for i in ours), key=lambda item: item.nodeid), strict=True):
        items[index] = item


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ops_tally"] = json.dumps(TALLY.plain())
    elif TALLY.cpu and TALLY.percent() < REQUIRED_PERCENT:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if tally := getattr(node, "workeroutput", {}).get("ops_tally"):
        TALLY.merge(json.loads(tally))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not TALLY.cpu:
        return
    terminalreporter.section(f"operator coverage on {DEVICE}")
    for line in TALLY.report():
        terminalreporter.write_line(line)
    if TALLY.percent() < REQUIRED_PERCENT:
        terminalreporter.write_line(f"below the required {REQUIRED_PERCENT} %: failed", red=True)
