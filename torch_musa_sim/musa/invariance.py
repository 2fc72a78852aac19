"""Results of a row that don't depend on how many rows are computed with it."""

from types import TracebackType

from torch_musa_sim import _C


class batch_invariant:
    """While on, a row of a result does not depend on the number of rows that are computed with it.

    Without it a row never depends on the contents of other rows, but matrix products and attention choose, by the
    number of rows, among kernels that add up in different orders: the same prompt in a batch of another size may differ
    in the last digits. With it the choice looks at nothing that the number of rows changes, and nothing is timed.
    docs/ops.md lists the operators that this holds for and what it costs.

    Holds for the whole process from the call on; as a context manager until its end::

        torch.musa.batch_invariant(True)
        with torch.musa.batch_invariant():
            ...

    A captured graph runs as the mode is at its replay. Raises TypeError unless `mode` is a bool.
    """

    def __init__(self, mode: bool = True) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"batch_invariant takes True or False, got {mode!r}")
        self._before = _C._is_batch_invariant()
        _C._set_batch_invariant(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._set_batch_invariant(self._before)


def is_batch_invariant() -> bool:
    """Whether `batch_invariant` is on."""
    return _C._is_batch_invariant()
