"""Cards as the tools see them, made up for golden texts."""

import time

from torch_musa_sim.cli._observe import Card, Process

NOW = time.strptime("2026-11-30 20:15:00", "%Y-%m-%d %H:%M:%S")


def make_card(index: int, processes: tuple[Process, ...] = (), busy: float = 0.0) -> Card:
    return Card(
        index=index,
        name="MTT S5000",
        model="S5000",
        uuid=f"746f7263-685f-6d75-7361-5f73696d00{index:02x}",
        serial=f"SIM{index:06d}",
        pci=f"00000000:{index + 1:02x}:00.0",
        ecc="On-die, EDC",
        memory=85813358592,
        major=3,
        minor=1,
        multiprocessors=56,
        clock_mhz=1500,
        memory_clock_mhz=20000,
        memory_bus_bits=640,
        bandwidth=1.6e12,
        power_idle_w=95.0,
        power_limit_w=950.0,
        temperature_idle_c=45.0,
        temperature_load_c=80.0,
        links=14,
        links_per_peer=2,
        link_version=20000,
        link_bandwidth=53e9,
        pci_vendor_id=0x1ED5,
        pci_device_id=0x400,
        pci_generation=5,
        pci_lanes=16,
        memory_used=sum(process.memory for process in processes),
        busy=busy,
        memory_busy=busy / 2,
        power_w=95 + busy * 855,
        temperature_c=45 + busy * 35,
        processes=processes,
    )


def two_cards() -> list[Card]:
    """The second one is used by two processes."""
    users = (
        Process(4711, 60 << 30, 0.5, "/usr/bin/python3 train.py --config a/very/long/path/to/a/file.yaml"),
        Process(4712, 5 << 30, 0.25, "python serve.py"),
    )
    return [make_card(0), make_card(1, users, busy=0.75)]
