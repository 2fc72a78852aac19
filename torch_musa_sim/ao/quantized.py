"""The fused convolutions with an int8 weight.

torch has no integer kernel for them and no quantised tensors on musa. The packed weight stays in host memory, whatever
the `device`; a forward computes with the values that weight and input stand for, in float, and rounds the result once,
to `scale` and `zero_point`. The input says what comes back:

- a quantised tensor (on the CPU) gives a quantised tensor of its dtype;
- a float tensor, of musa or the CPU, is taken for values already dequantised and gives such values, on the same device.
"""

import copy
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.ao.nn import quantized as nnq
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_weights

from torch_musa_sim.ao import fused, qat

__all__ = ["ConvAddSiLU2d", "ConvSiLU2d"]

_reverse_repeat_padding = nnq.modules.conv._reverse_repeat_padding
_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_symmetric)
_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


class _QuantizedConv2d(nnq.Conv2d):
    """What the classes below share. `padding_mode` is "zeros" or "reflect", as torch's quantised Conv2d has them."""

    _QAT_MODULES: ClassVar[tuple[type[nn.Module], ...]] = ()

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
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, dtype=dtype
        )

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def _convolve(self, input: Tensor) -> Tensor:
        """The convolution of the values of `input`, in float."""
        if input.dim() != 4:
            raise ValueError(f"{self._get_name()}: the input has {input.dim()} dimensions, it must be (N, C, H, W)")
        values = _values(input)
        weight, bias = self._weight_bias()
        weight = weight.dequantize().to(values.device)
        bias = None if bias is None else bias.to(values.device)
        padding = self.padding
        if self.padding_mode != "zeros":
            values = functional.pad(values, _reverse_repeat_padding(self.padding), mode=self.padding_mode)
            padding = (0, 0)
        return functional.conv2d(values, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _rounded(self, result: Tensor, like: Tensor) -> Tensor:
        """`result` rounded to scale and zero point, in the form of `like`."""
        if like.is_quantized:
            return torch.quantize_per_tensor(result, self.scale, self.zero_point, like.dtype)
        return torch.fake_quantize_per_tensor_affine(result, self.scale, self.zero_point, 0, 255).to(like.dtype)

    @classmethod
    def from_float(  # type: ignore[override]
        cls, mod: nn.Module, use_precomputed_fake_quant: bool = False
    ) -> Self:
        """From the float container with a qconfig, or from its trained `qat` twin.

        Scale and zero point of the output come from the module's `activation_post_process`, which a `qat` module must
        have. `use_precomputed_fake_quant`: a `qat` module's weight isn't observed once more.
        """
        conv: Any = mod
        trained = type(mod) in cls._QAT_MODULES
        if trained:
            if not hasattr(mod, "activation_post_process"):
                raise ValueError(
                    f"{cls.__name__}.from_float: the qat module has no activation_post_process, so nothing says how to "
                    "quantise its result; prepare the model with torch.ao.quantization.prepare_qat"
                )
            observer: Any = mod.weight_fake_quant
        elif type(mod) is cls._FLOAT_MODULE:
            if not getattr(mod, "qconfig", None):
                raise ValueError(f"{cls.__name__}.from_float: the float module has no qconfig")
            qconfig: Any = mod.qconfig
            conv, observer = mod[0], qconfig.weight()  # type: ignore[index]
        else:
            wanted = " or ".join(
                f"{kind.__module__}.{kind.__name__}" for kind in (cls._FLOAT_MODULE, *cls._QAT_MODULES)
            )
            raise TypeError(f"{cls.__name__}.from_float takes {wanted}, not {type(mod).__name__}")
        weight, bias = _folded(conv)
        if not trained:
            observer(weight.float().cpu())  # it was made just now, on the CPU
        elif not use_precomputed_fake_quant:
            observer(weight)
        made = cls._like(conv, _quantized_weight(cls.__name__, weight, observer), bias)
        activation: Any = getattr(mod, "activation_post_process", None)
        if activation is not None and getattr(activation, "dtype", torch.float) != torch.float:
            scale, zero_point = activation.calculate_qparams()
            made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: Any, output_zero_point: Any) -> Self:
        """From a reference convolution of torch.ao.nn.quantized.reference, alone or first in a fused container."""
        reference: Any = ref_qconv[0] if isinstance(ref_qconv, nn.Sequential) else ref_qconv
        on_host: Any = copy.deepcopy(reference).cpu()
        made = cls._like(reference, on_host.get_quantized_weight(), on_host.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made

    @classmethod
    def _like(cls, conv: Any, weight: Tensor, bias: Tensor | None) -> Self:
        made = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
            conv.groups,
            bias is not None,
            conv.padding_mode,
        )
        made.set_weight_bias(weight, None if bias is None else bias.detach().float().cpu())
        return made


class ConvSiLU2d(_QuantizedConv2d):
    """silu(conv(x)) with an int8 weight, on quantised CPU tensors or dequantised values (of musa too; see the file)."""

    _FLOAT_MODULE = fused.ConvSiLU2d  # type: ignore[assignment]
    _QAT_MODULES = (qat.ConvSiLU2d, qat.ConvBnSiLU2d)

    def forward(self, input: Tensor) -> Tensor:
        return self._rounded(functional.silu(self._convolve(input)), input)


class ConvAddSiLU2d(_QuantizedConv2d):
    """silu(conv(x) + y) with an int8 weight, on the same tensors.

    The sum is torch's `+`, whatever the `add` of the float container it was made from.
    """

    _FLOAT_MODULE = fused.ConvAddSiLU2d  # type: ignore[assignment]

    def forward(self, input: Tensor, extra_input: Tensor) -> Tensor:  # type: ignore[override]
        return self._rounded(functional.silu(self._convolve(input) + _values(extra_input)), input)


def _values(tensor: Tensor) -> Tensor:
    return tensor.dequantize() if tensor.is_quantized else tensor.float()


def _folded(conv: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a convolution, with its batch norm folded in where it has one."""
    weight: Any = conv.weight
    bias: Any = conv.bias
    if norm := getattr(conv, "bn", None):
        weight, bias = fuse_conv_bn_weights(
            weight, bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
    return weight.detach(), None if bias is None else bias.detach()


def _quantized_weight(name: str, weight: Tensor, observer: Any) -> Tensor:
    if observer.dtype != torch.qint8:
        raise ValueError(f"{name}: the qconfig's weight observer has dtype {observer.dtype}, it must have torch.qint8")
    scale, zero_point = observer.calculate_qparams()
    weight = weight.float().cpu()
    if observer.qscheme in _PER_TENSOR:
        return torch.quantize_per_tensor(weight, float(scale), int(zero_point), torch.qint8)
    if observer.qscheme in _PER_CHANNEL:
        scales, zero_points = scale.double().cpu(), zero_point.long().cpu()
        return torch.quantize_per_channel(weight, scales, zero_points, observer.ch_axis, torch.qint8)
    raise ValueError(
        f"{name}: the weight observer's scheme is {observer.qscheme}, it must be per tensor or per channel"
    )
