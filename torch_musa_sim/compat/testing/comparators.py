"""When a result counts as equal to the reference ("golden") one."""

from typing import Any

import torch


class Comparator:
    """Base: a subclass sets `_comparator`, a function of (result, golden) that returns a bool."""

    def __init__(self) -> None:
        self._comparator: Any = None
        self._tolerance: tuple[float, float] = (0.0, 0.0)

    def __call__(self, result: torch.Tensor, golden: torch.Tensor) -> bool:
        if self._comparator is None:
            raise NotImplementedError(f"{type(self).__name__} defines no _comparator")
        if not callable(self._comparator):
            raise TypeError(f"_comparator must be callable, but is {self._comparator!r}")
        return bool(self._comparator(result, golden))

    def get_tolerance(self) -> tuple[float, float]:
        """(absolute, relative) tolerance."""
        return self._tolerance


class DefaultComparator(Comparator):
    """|result - golden| <= abs_diff + rel_diff * |golden|; NaN equals NaN with `equal_nan`."""

    def __init__(self, abs_diff: float = 1e-7, rel_diff: float = 1e-5, equal_nan: bool = False) -> None:
        super().__init__()
        self._tolerance = (abs_diff, rel_diff)
        self._comparator = lambda result, golden: torch.allclose(
            result, golden, atol=abs_diff, rtol=rel_diff, equal_nan=equal_nan
        )


class BooleanComparator(Comparator):
    """Equal in every element."""

    def __init__(self) -> None:
        super().__init__()
        self._comparator = torch.equal


class AbsDiffComparator(Comparator):
    """|result - golden| < abs_diff."""

    def __init__(self, abs_diff: float = 1e-3) -> None:
        super().__init__()
        self._tolerance = (abs_diff, 0.0)
        self._comparator = lambda result, golden: bool(((golden - result).abs() < abs_diff).all())


class RelDiffComparator(Comparator):
    """|result - golden| < rel_diff * |golden|, or both are 0."""

    def __init__(self, rel_diff: float = 1e-5) -> None:
        super().__init__()
        self._tolerance = (0.0, rel_diff)
        self._comparator = lambda result, golden: bool(
            (((golden - result).abs() < rel_diff * golden.abs()) | (golden == result)).all()
        )


class QuantizedComparator(Comparator):
    """Two quantised tensors: same scheme and parameters, and values as DefaultComparator says."""

    def __init__(
        self, abs_diff: float = 1e-6, rel_diff: float = 1e-5, equal_nan: bool = False, is_per_tensor: bool = True
    ) -> None:
        super().__init__()
        self._tolerance = (abs_diff, rel_diff)
        values = DefaultComparator(abs_diff, rel_diff, equal_nan)

        def compare(result: torch.Tensor, golden: torch.Tensor) -> bool:
            if is_per_tensor:
                parameters = [(one.q_scale(), one.q_zero_point()) for one in (result, golden)]
                same = parameters[0] == parameters[1]
            else:
                same = result.q_per_channel_axis() == golden.q_per_channel_axis() and all(
                    torch.equal(getattr(result, name)(), getattr(golden, name)())
                    for name in ("q_per_channel_scales", "q_per_channel_zero_points")
                )
            return same and values(result.dequantize(), golden.dequantize())

        self._comparator = compare
