"""The commands `musaInfo`, `musa_version_query` and `musa_toolkits_version`, which programs around torch call."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from torch_musa_sim import __version__
from torch_musa_sim.cli._observe import Card, ObserveError, Runtime
from torch_musa_sim.cli._output import show


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def device_text(card: Card, cards: Sequence[Card], version: int) -> str:
    """What `musaInfo` prints of one card: a name and a value a line."""
    others = [str(other.index) for other in cards if other.index != card.index]
    rows = [
        ("Name", f"{card.name} (simulated)"),
        ("UUID", card.uuid),
        ("pciBusID", card.pci),
        ("driver / runtime version", f"{_dotted(version)} / {_dotted(version)}"),
        ("compute capability", f"{card.major}.{card.minor}"),
        ("multiProcessorCount", card.multiprocessors),
        ("clockRate", f"{card.clock_mhz} MHz"),
        ("memoryClockRate", f"{card.memory_clock_mhz} MHz"),
        ("memoryBusWidth", f"{card.memory_bus_bits} bit"),
        ("totalGlobalMem", f"{card.memory} B ({card.memory / (1 << 30):.2f} GiB)"),
        ("memInfo.free", f"{max(0, card.memory - card.memory_used)} B"),
        ("peers", " ".join(others) or "none"),
    ]
    rule = "-" * 80
    return "\n".join([rule, f"{'device#':<34}{card.index}", *(f"{name + ':':<34}{value}" for name, value in rows)])


def version_text(component: str, version: int) -> str:
    """A component's version as the toolkit's own programs print it: its name and an object of strings."""
    content = {
        "version": _dotted(version),
        "git branch": "torch_musa_sim",
        "git tag": __version__,
        "commit id": "simulated",
        "commit date": "simulated",
    }
    return f"{component}:\n{json.dumps(content, indent=4)}"


def _run(name: str, about: str, argv: Sequence[str] | None, output: Callable[[Runtime], str]) -> int:
    argparse.ArgumentParser(prog=name, description=about).parse_args(sys.argv[1:] if argv is None else argv)
    try:
        show(output(Runtime()))
    except ObserveError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


def musa_info(argv: Sequence[str] | None = None) -> int:
    """`musaInfo`: the cards of this host. Returns 0, or 1 with one line on stderr."""

    def output(runtime: Runtime) -> str:
        cards = runtime.cards()
        return "\n".join(device_text(card, cards, runtime.version()) for card in cards)

    return _run("musaInfo", "What the simulated cards of this host are.", argv, output)


def musa_version_query(argv: Sequence[str] | None = None) -> int:
    """`musa_version_query`: the version of the simulated runtime."""
    about = "Version of the simulated MUSA runtime."
    return _run("musa_version_query", about, argv, lambda runtime: version_text("musa_runtime", runtime.version()))


def musa_toolkits_version(argv: Sequence[str] | None = None) -> int:
    """`musa_toolkits_version`: the version of the MUSA stack that is simulated."""
    about = "Version of the simulated MUSA toolkit."
    return _run("musa_toolkits_version", about, argv, lambda runtime: version_text("musa_toolkits", runtime.version()))
