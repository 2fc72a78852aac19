"""The fused convolutions for quantisation-aware training: float tensors, with the weight rounded as int8 would be."""

from typing import Any

from torch import Tensor, nn
from torch.ao.nn import intrinsic
from torch.ao.nn.intrinsic import qat as intrinsic_qat
from torch.ao.nn.qat import Conv2d
from torch.nn import functional

from torch_musa_sim.ao import fused

__all__ = ["ConvBnSiLU2d", "ConvSiLU2d"]


class ConvBnSiLU2d(intrinsic_qat.ConvBn2d):
    """silu of a convolution whose batch norm is folded into the fake-quantised weight; parameters as ConvBn2d's.

    (N, C_in, H, W) to (N, C_out, H', W'), in the device and dtype of the parameters. Needs a qconfig.
    """

    _FLOAT_MODULE = fused.ConvBnSiLU2d  # type: ignore[assignment]
    _FLOAT_CONV_MODULE = nn.Conv2d
    _FLOAT_BN_MODULE = nn.BatchNorm2d
    _FLOAT_RELU_MODULE = nn.SiLU  # torch's name for whatever activation follows  # type: ignore[assignment]
    _FUSED_FLOAT_MODULE = fused.ConvSiLU2d  # type: ignore[assignment]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
    ) -> None:
        _require_qconfig("ConvBnSiLU2d", qconfig)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            eps,
            momentum,
            freeze_bn,
            qconfig,
        )

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(self._forward(input))

    @classmethod
    def from_float(cls, mod: fused.ConvBnSiLU2d, use_precomputed_fake_quant: bool = False) -> "ConvBnSiLU2d":
        """The module with the parameters and statistics of `mod`, a fused.ConvBnSiLU2d with a qconfig."""
        _require_float("ConvBnSiLU2d", mod, fused.ConvBnSiLU2d)
        made: ConvBnSiLU2d = super().from_float(mod, use_precomputed_fake_quant)
        return made


class ConvSiLU2d(Conv2d, intrinsic._FusedModule):
    """silu of a convolution with a fake-quantised weight; parameters as torch.ao.nn.qat.Conv2d's.

    (N, C_in, H, W) to (N, C_out, H', W'), in the device and dtype of the parameters. Needs a qconfig.
    """

    _FLOAT_MODULE = fused.ConvSiLU2d  # type: ignore[assignment]
    _FLOAT_CONV_MODULE = nn.Conv2d
    _FLOAT_BN_MODULE = None
    _FLOAT_RELU_MODULE = nn.SiLU

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: Any = "zeros",
        qconfig: Any = None,
    ) -> None:
        _require_qconfig("ConvSiLU2d", qconfig)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            padding_mode=padding_mode,
            qconfig=qconfig,
        )

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias))

    @classmethod
    def from_float(  # type: ignore[override]
        cls, mod: fused.ConvSiLU2d, use_precomputed_fake_quant: bool = False
    ) -> "ConvSiLU2d":
        """The module with the parameters of `mod`, a fused.ConvSiLU2d with a qconfig, which its Conv2d takes on too."""
        _require_float("ConvSiLU2d", mod, fused.ConvSiLU2d)
        mod[0].qconfig = mod.qconfig  # torch reads it there
        made: ConvSiLU2d = super().from_float(mod, use_precomputed_fake_quant=use_precomputed_fake_quant)
        return made


def _require_qconfig(name: str, qconfig: object) -> None:
    if not qconfig:
        raise ValueError(f"qat.{name} needs a qconfig; torch.ao.quantization.get_default_qat_qconfig() gives one")


def _require_float(name: str, mod: nn.Module, wanted: type[nn.Module]) -> None:
    if type(mod) is not wanted:
        raise TypeError(f"qat.{name}.from_float takes a float {wanted.__name__}, not a {type(mod).__name__}")
    _require_qconfig(name, getattr(mod, "qconfig", None))
