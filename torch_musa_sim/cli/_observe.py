"""What the cards of this host are and do, read from the runtime library. Needs no torch and uses no card.

Cards are counted physically: MUSA_VISIBLE_DEVICES hides none, as a management tool on hardware sees them all.
"""

import ctypes
import os
from ctypes import byref, c_char, c_char_p, c_double, c_int, c_size_t
from dataclasses import dataclass
from pathlib import Path

LIBRARIES = Path(__file__).resolve().parent.parent / "lib"


class ObserveError(RuntimeError):
    """The runtime refused: a bad environment value, an unknown card. The text is one sentence."""


class _Info(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 64),
        ("model", c_char * 32),
        ("uuid", c_char * 40),
        ("serial", c_char * 32),
        ("pci", c_char * 32),
        ("ecc", c_char * 32),
        ("memory", c_size_t),
        ("major", c_int),
        ("minor", c_int),
        ("multiprocessors", c_int),
        ("clock_mhz", c_int),
        ("memory_clock_mhz", c_int),
        ("memory_bus_bits", c_int),
        ("bandwidth", c_double),
        ("power_idle_w", c_double),
        ("power_limit_w", c_double),
        ("temperature_idle_c", c_double),
        ("temperature_load_c", c_double),
        ("links", c_int),
        ("links_per_peer", c_int),
        ("link_version", c_int),
        ("link_bandwidth", c_double),
        ("pci_vendor_id", c_int),
        ("pci_device_id", c_int),
        ("pci_generation", c_int),
        ("pci_lanes", c_int),
    ]


class _State(ctypes.Structure):
    _fields_ = [
        ("memory_used", c_size_t),
        ("busy", c_double),
        ("memory_busy", c_double),
        ("power_w", c_double),
        ("temperature_c", c_double),
        ("processes", c_int),
    ]


class _Process(ctypes.Structure):
    _fields_ = [("pid", c_int), ("memory", c_size_t), ("busy", c_double), ("command", c_char * 256)]


@dataclass(frozen=True)
class Process:
    """A process that uses a card: `memory` in bytes of that card, `busy` from 0 to 1."""

    pid: int
    memory: int
    busy: float
    command: str


@dataclass(frozen=True)
class Card:
    """One card now. Memory in bytes, rates in bytes per second, shares from 0 to 1 (see musart_observe.h)."""

    index: int
    name: str
    model: str
    uuid: str
    serial: str
    pci: str
    ecc: str
    memory: int
    major: int
    minor: int
    multiprocessors: int
    clock_mhz: int
    memory_clock_mhz: int
    memory_bus_bits: int
    bandwidth: float
    power_idle_w: float
    power_limit_w: float
    temperature_idle_c: float
    temperature_load_c: float
    links: int
    links_per_peer: int
    link_version: int
    link_bandwidth: float
    pci_vendor_id: int
    pci_device_id: int
    pci_generation: int
    pci_lanes: int
    memory_used: int
    busy: float
    memory_busy: float
    power_w: float
    temperature_c: float
    processes: tuple[Process, ...]


class _Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("accepted", c_char_p), ("default", c_char_p), ("about", c_char_p)]


@dataclass(frozen=True)
class Setting:
    """An environment variable: `value` is in force, `default` when it is unset."""

    name: str
    accepted: str
    default: str
    about: str
    value: str


class Runtime:
    """The calls of libmusart.so that look at cards from outside."""

    def __init__(self) -> None:
        path = LIBRARIES / "libmusart.so"
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ObserveError(
                f"the runtime library can't be loaded: {error}; build or install the package again"
            ) from None
        for name in ("musaSimGetLastErrorDetail", "musaSimSettingValue", "musaSimDriverName"):
            getattr(self._library, name).restype = c_char_p
        self._library.musaSimSettingAt.restype = ctypes.POINTER(_Setting)

    def card_count(self) -> int:
        """Number of cards of the host."""
        count = c_int()
        self._call("musaSimCountCards", byref(count))
        return count.value

    def cards(self) -> list[Card]:
        """All cards of the host, as they are now."""
        return [self.card(index) for index in range(self.card_count())]

    def card(self, index: int) -> Card:
        """One card of the host. ObserveError when there is none of that number."""
        info, state = _Info(), _State()
        self._call("musaSimDescribeCard", index, byref(info))
        self._call("musaSimObserveCard", index, byref(state))
        values = {field[0]: getattr(info, field[0]) for field in _Info._fields_}
        values |= {field[0]: getattr(state, field[0]) for field in _State._fields_}
        values = {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
        return Card(**{**values, "index": index, "processes": self._processes(index)})

    def settings(self) -> list[Setting]:
        """Every environment variable of the project."""
        found = []
        for index in range(self._library.musaSimSettingCount()):
            one = self._library.musaSimSettingAt(index).contents
            value = self._library.musaSimSettingValue(one.name)
            found.append(Setting(*(text.decode() for text in (one.name, one.accepted, one.default, one.about, value))))
        return found

    def check_settings(self) -> None:
        """Raises ObserveError for the first environment variable whose value isn't accepted."""
        self._call("musaSimCheckSettings")

    def visible_cards(self) -> int:
        """Number of cards that MUSA_VISIBLE_DEVICES leaves visible."""
        count = c_int()
        self._call("musaGetDeviceCount", byref(count))
        return count.value

    def link_peer(self, card: int, link: int) -> int:
        """The card at the other end of an MTLink port, -1 when the port is down."""
        peer = c_int()
        self._call("musaSimLinkPeer", card, link, byref(peer))
        return peer.value

    def driver(self) -> str:
        """Version of the simulated driver, "3.3.5-sim"."""
        return str(self._library.musaSimDriverName().decode())

    def version(self) -> int:
        """Version of the MUSA stack that is simulated: major * 10000 + minor * 100 + patch."""
        version = c_int()
        self._call("musaRuntimeGetVersion", byref(version))
        return version.value

    def _processes(self, card: int) -> tuple[Process, ...]:
        count = c_int()
        self._call("musaSimObserveProcesses", card, None, 0, byref(count))
        capacity = count.value + 8  # some may have come meanwhile
        found = (_Process * capacity)()
        self._call("musaSimObserveProcesses", card, found, capacity, byref(count))
        return tuple(
            Process(one.pid, one.memory, one.busy, os.fsdecode(one.command))
            for one in found[: min(capacity, count.value)]
        )

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, name)(*arguments) != 0:
            raise ObserveError(self._library.musaSimGetLastErrorDetail().decode())
