"""What `musa-sim doctor` looks at. Nothing here imports torch: a child process tries that."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch_musa_sim
from torch_musa_sim import _real_package
from torch_musa_sim.cli._observe import LIBRARIES, ObserveError, Runtime

_GIB = 1 << 30
_PREFIX = "TORCH_MUSA_SIM_"
_LIBRARY_NAMES = ("libmusart.so", "libmtml.so.2", "libtorch_musa_sim.so")
_BUILD = "Build the package: pip install --no-build-isolation . in its tree."


@dataclass
class Findings:
    """`problems` are wrong, `notes` worth knowing; each is a fact and what to do about it."""

    problems: list[dict[str, str]] = field(default_factory=list)
    notes: list[dict[str, str]] = field(default_factory=list)

    def problem(self, what: str, cure: str) -> None:
        self.problems.append({"what": what, "cure": cure})

    def note(self, what: str, cure: str) -> None:
        self.notes.append({"what": what, "cure": cure})


def examine() -> dict[str, Any]:
    """The whole report: versions, host, cards, settings, notes, problems; values that JSON can hold."""
    findings = Findings()
    check_real_package(findings)
    versions = check_versions(findings)
    host = check_host(findings)
    cards, settings = check_cards(findings)
    check_environment(findings, [setting["name"] for setting in settings])
    if not findings.problems:
        check_device(findings)
    return {
        "versions": versions,
        "host": host,
        "cards": cards,
        "settings": settings,
        "notes": findings.notes,
        "problems": findings.problems,
    }


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_real_package(findings: Findings) -> None:
    real = _real_package.find()
    if real is not None:
        first, _, cure = str(real).partition("; ")
        findings.problem(f"{first}.", f"{cure[0].upper()}{cure[1:]}.")
        return
    spec = importlib.util.find_spec("torch_musa")
    origin = "" if spec is None else str(spec.origin)
    ours = origin and "torch_musa_sim" in Path(origin).read_text()
    if not ours:
        what = f"the package torch_musa is not ours but {origin}." if origin else "the package torch_musa is missing."
        findings.problem(
            f"{what[0].upper()}{what[1:]} accelerate, transformers and others look for it.",
            "Install torch_musa_sim again: pip install --force-reinstall --no-deps torch_musa_sim.",
        )


def check_versions(findings: Findings) -> dict[str, str]:
    built = _built_against()
    running = _version_of("torch")
    if running is None:
        findings.problem(f"torch is not installed for {sys.executable}.", "Run: pip install torch==2.13.0")
    elif built is not None and built.split(".")[:2] != running.split(".")[:2]:
        minor = ".".join(built.split(".")[:2])
        findings.problem(
            f"torch_musa_sim was built against torch {built}, installed is torch {running}.",
            f"Run: pip install 'torch=={minor}.*', or build torch_musa_sim again in this environment.",
        )
    missing = [name for name in _LIBRARY_NAMES if not (LIBRARIES / name).is_file()]
    if missing:
        findings.problem(f"Missing in {LIBRARIES}: {', '.join(missing)}.", _BUILD)
    elif built is None:
        findings.problem("The native libraries were never built.", _BUILD)
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        findings.note("There is no C++ compiler.", "Only torch.compile and extensions need one: install g++.")
    return {
        "torch_musa_sim": f"{torch_musa_sim.__version__} in {Path(torch_musa_sim.__file__).parent}",
        "torch": f"{running or 'not installed'} (built against {built or 'none'})",
        "python": f"{platform.python_version()} ({sys.executable})",
        "compiler": _first_line([compiler.split()[-1], "--version"]) if compiler else "none",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _built_against() -> str | None:
    try:
        from torch_musa_sim import _build_info
    except ImportError:
        return None
    return _build_info.TORCH_VERSION


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stdout or done.stderr).partition("\n")[0]


def _first_words(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def check_host(findings: Findings) -> dict[str, str]:
    memory = {}
    for line in _first_words("/proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        memory[name] = int(amount.split()[0]) * 1024
    available = memory.get("MemAvailable", 0)
    limit = _first_words("/sys/fs/cgroup/memory.max")
    if limit.isdigit():
        available = min(available, int(limit) - int(_first_words("/sys/fs/cgroup/memory.current") or 0))
    if available < 2 * _GIB:
        findings.note(
            f"Only {available / _GIB:.1f} GiB of the host's memory are available, where the tensors on the cards lie.",
            "Close other programs, or load smaller models.",
        )
    if _first_words("/proc/sys/vm/overcommit_memory") == "2":
        findings.note(
            "The host grants only memory that it has (vm.overcommit_memory=2); the cards' addresses may be refused.",
            "Run: sysctl vm.overcommit_memory=0, or choose fewer cards or less memory (TORCH_MUSA_SIM_CARDS, _MEMORY).",
        )
    huge = _first_words("/sys/kernel/mm/transparent_hugepage/enabled")
    if "[never]" in huge:
        findings.note(
            "Transparent huge pages are off: large operators are slower on their first touch of memory.",
            "Run: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    shared = check_shared_memory(findings)
    chosen = huge.partition("[")[2].partition("]")[0]
    return {
        "processors": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "memory": f"{available / _GIB:.1f} GiB available of {memory.get('MemTotal', 0) / _GIB:.1f} GiB",
        "cgroup limit": f"{int(limit) / _GIB:.1f} GiB" if limit.isdigit() else "none",
        "huge pages": chosen or "unknown",
        "/dev/shm": shared,
    }


def check_shared_memory(findings: Findings, folder: str = "/dev/shm") -> str:
    """Processes share the cards' memory through a file there."""
    if not os.access(folder, os.W_OK | os.X_OK):
        findings.note(
            f"{folder} can't be written to: the processes' common account of the cards' memory goes to {_temporary()}.",
            f"Mount a tmpfs at {folder}; in a container: --shm-size=1g.",
        )
        return "not writable"
    free = shutil.disk_usage(folder).free
    if free < 256 << 20:
        findings.note(
            f"{folder} has only {free >> 20} MiB left; data loaders and several ranks on this host pass tensors there.",
            "In a container: --shm-size=1g or more.",
        )
    return f"{free / _GIB:.1f} GiB free"


def _temporary() -> str:
    return os.environ.get("TMPDIR", "/tmp")


def check_cards(findings: Findings) -> tuple[dict[str, str], list[dict[str, str]]]:
    try:
        runtime = Runtime()
    except ObserveError as error:
        findings.problem(f"{error}.", _BUILD)
        return {}, []
    settings = [vars(setting) for setting in runtime.settings()]
    for setting in settings:  # this environment's cards are asked for, not those of a program that runs
        if setting["name"] == f"{_PREFIX}CARDS":
            os.environ.setdefault(setting["name"], setting["value"])
    try:
        runtime.check_settings()
        cards, visible = runtime.cards(), runtime.visible_cards()
    except ObserveError as error:
        findings.problem(f"{error}.", "Correct or unset the variable.")
        return {}, settings
    if visible == 0:
        hidden = os.environ.get("MUSA_VISIBLE_DEVICES", "")
        findings.problem(
            f"No card is visible: MUSA_VISIBLE_DEVICES={hidden!r} hides all of them.",
            f"Unset MUSA_VISIBLE_DEVICES, or name cards: 0 .. {len(cards) - 1}.",
        )
    used = sum(card.memory_used for card in cards)
    users = {process.pid for card in cards for process in card.processes}
    return {
        "cards": f"{len(cards)} x {cards[0].name} (simulated), {visible} visible",
        "memory of each": f"{cards[0].memory / _GIB:.2f} GiB",
        "driver": runtime.driver(),
        "in use": f"{used / _GIB:.2f} GiB by {len(users)} process{'' if len(users) == 1 else 'es'}",
    }, settings


def check_environment(findings: Findings, known: list[str]) -> None:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        findings.problem(
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from making the device.",
            "Unset it, or write `import torch_musa_sim` after `import torch`.",
        )
    if known:
        for name in sorted(os.environ):
            if name.startswith(_PREFIX) and name not in known:
                findings.problem(
                    f"The environment variable {name} is not known and has no effect.",
                    f"Known are: {', '.join(known)}.",
                )
    hooks = {entry.name: entry.value for entry in importlib.metadata.entry_points(group="torch.backends")}
    if "torch_musa_sim" not in hooks:
        findings.problem(
            "torch_musa_sim is not installed, only on the import path: `import torch` doesn't make the device.",
            "Run: pip install --no-build-isolation -e . in its tree, or write `import torch_musa_sim`.",
        )
    for name, value in hooks.items():
        if name not in ("torch_musa_sim", "torch_musa"):
            findings.note(
                f"Another out-of-tree backend is installed: {name} ({value}). torch has room for one.",
                "If the device isn't available, uninstall it.",
            )


_TRIAL = """
import json, torch
total = (torch.ones(4, device="musa") + 1).sum().item()
print(json.dumps([total, torch.accelerator.current_accelerator().type, torch.musa.get_device_name()]))
"""


def check_device(findings: Findings) -> None:
    """Uses the device in a child process: neither an exception nor a crash there harms the report."""
    done = subprocess.run([sys.executable, "-P", "-c", _TRIAL], capture_output=True, text=True, timeout=300)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode == 0 and last.startswith("[") and json.loads(last)[:2] == [8.0, "musa"]:
        return
    why = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
    findings.problem(
        f"An addition on the device failed: {why}",
        "See all of it with: python -c \"import torch; print(torch.ones(4, device='musa') + 1)\"",
    )
