"""What each operator did on the cards of this process: behind reports and the coverage of native kernels."""

from dataclasses import dataclass

from torch_musa_sim import _C


@dataclass(frozen=True)
class OperatorStatistics:
    """One operator since the start of the process or the last `reset_op_statistics`.

    name: as in torch's dispatcher, "aten::add.Tensor". bridged: True when some calls ran PyTorch's CPU kernel on card
    memory, False when kernels of our own served all of them. native_calls: how many of the calls these served. bytes:
    read plus written in card memory. device_ns: nanoseconds of the cards' virtual time. copies: results that had to be
    moved from host memory to the card.
    """

    name: str
    bridged: bool
    calls: int
    native_calls: int
    bytes: int
    device_ns: int
    copies: int


def op_statistics() -> list[OperatorStatistics]:
    """Operators that were called on any card since the last reset, in order of their first use in the process."""
    return [OperatorStatistics(**entry) for entry in _C._op_statistics()]


def reset_op_statistics() -> None:
    """Starts the figures of `op_statistics` anew."""
    _C._reset_op_statistics()
