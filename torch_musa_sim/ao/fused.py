"""Float containers of a convolution and what follows it, the form that quantisation looks for."""

from torch import Tensor, nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.nn.utils.parametrize import type_before_parametrizations

__all__ = ["ConvAddSiLU2d", "ConvBnSiLU2d", "ConvSiLU2d"]


def _require(container: str, **parts: tuple[nn.Module, type[nn.Module]]) -> None:
    for name, (given, wanted) in parts.items():
        found = type_before_parametrizations(given)  # type: ignore[no-untyped-call]
        if found is not wanted:
            raise TypeError(f"{container}: {name} is a {found.__name__}, it must be a {wanted.__name__}")


class ConvSiLU2d(_FusedModule):
    """silu(conv(x)): (N, C_in, H, W) to (N, C_out, H', W'). TypeError for other modules than Conv2d and SiLU."""

    def __init__(self, conv: nn.Conv2d, silu: nn.SiLU) -> None:
        _require("ConvSiLU2d", conv=(conv, nn.Conv2d), silu=(silu, nn.SiLU))
        super().__init__(conv, silu)


class ConvBnSiLU2d(_FusedModule):
    """silu(bn(conv(x))): (N, C_in, H, W) to (N, C_out, H', W').

    TypeError for other modules than Conv2d, BatchNorm2d and SiLU.
    """

    def __init__(self, conv: nn.Conv2d, bn: nn.BatchNorm2d, silu: nn.SiLU) -> None:
        _require("ConvBnSiLU2d", conv=(conv, nn.Conv2d), bn=(bn, nn.BatchNorm2d), silu=(silu, nn.SiLU))
        super().__init__(conv, bn, silu)


class ConvAddSiLU2d(_FusedModule):
    """silu(add(conv(x1), x2)); x2 has a shape that `add` (a function or a module of two tensors) accepts.

    TypeError for other modules than Conv2d and SiLU, or an `add` that can't be called.
    """

    def __init__(self, conv: nn.Conv2d, add: object, silu: nn.SiLU) -> None:
        _require("ConvAddSiLU2d", conv=(conv, nn.Conv2d), silu=(silu, nn.SiLU))
        if not callable(add):
            raise TypeError(f"ConvAddSiLU2d: add is a {type(add).__name__}, it must be callable with two tensors")
        super().__init__(conv)
        self.add = add
        self.silu = silu

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:  # type: ignore[override]
        result: Tensor = self.silu(self.add(self[0](x1), x2))
        return result
