"""What a management tool shows of a card, over all processes of the user; docs/tools.md says what the figures mean.

None of these functions initialises the device.
"""

from torch_musa_sim import _C
from torch_musa_sim.musa._utils import DeviceLike, _get_device_index

_MIB = 1 << 20


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes of the card that all processes together hold."""
    return int(_state(device)["memory_used"])


def utilization(device: DeviceLike = None) -> int:
    """Percent of the last one to two virtual seconds in which something ran on the card."""
    return round(100 * _state(device)["busy"])


def memory_usage(device: DeviceLike = None) -> int:
    """Percent of that time that the bytes moved in the card's memory would need at full bandwidth."""
    return round(100 * _state(device)["memory_busy"])


def temperature(device: DeviceLike = None) -> int:
    """Degrees Celsius, modelled from the utilisation."""
    return round(_state(device)["temperature_c"])


def power_draw(device: DeviceLike = None) -> int:
    """Milliwatts, modelled from the utilisation."""
    return round(1000 * _state(device)["power_w"])


def clock_rate(device: DeviceLike = None) -> int:
    """Clock of the card's cores in MHz; the model knows one frequency."""
    return int(_state(device)["clock_mhz"])


def list_gpu_processes(device: DeviceLike = None) -> str:
    """The processes that use a card, a line each, with the memory they hold of it."""
    index = _get_device_index(device, optional=True)
    lines = [f"GPU:{index}"]
    for process in _C._card_processes(index):
        pid, memory = process["pid"], process["memory"] / _MIB
        lines.append(f"process {pid:>10} uses {memory:>12.3f} MB GPU memory")  # as torch.cuda words it
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])


def _state(device: DeviceLike) -> dict[str, float]:
    return _C._card_state(_get_device_index(device, optional=True))
