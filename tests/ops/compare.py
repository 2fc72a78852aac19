"""Compares what musa returned with what the CPU returned: structure, shape, dtype, strides, values."""

from typing import Any

import torch

# Bit-equal is the rule; these bounds are for native kernels that sum in another order. (relative, absolute)
TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-5, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-3),
    torch.float16: (2e-3, 1e-4),
    torch.complex64: (1e-5, 1e-5),
    torch.complex128: (1e-9, 1e-9),
    torch.complex32: (2e-3, 1e-4),
}

# Dtypes without comparisons of their own.
COMPARED_AS = {
    torch.complex32: torch.complex64,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
}


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors of a nested structure, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for entry in value for t in tensors_in(entry)] if isinstance(value, (list, tuple)) else []


def _layout(tensor: torch.Tensor) -> list[int]:
    """Strides that matter: those of dimensions that are longer than one."""
    return [stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True) if size > 1]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_nested:
        tensor = torch.cat([part.flatten() for part in tensor.unbind()])
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg()


def difference(
    actual: Any, expected: Any, device: str, values: bool = True, strides: bool = True, cancels: bool = False
) -> str | None:
    """What differs, or None. `actual` is on `device`, `expected` on the CPU; `values=False` compares metadata only.

    cancels: numbers are sums in which larger ones cancel, so that the bound of their error grows with the largest.
    """
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor):
            return f"is a {type(actual).__name__}, expected a tensor"
        return _tensor_difference(actual.detach(), expected.detach(), device, values, strides, cancels)
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return f"is {type(actual).__name__} of another length than the CPU's"
        for index, (a, e) in enumerate(zip(actual, expected, strict=True)):
            if found := difference(a, e, device, values, strides, cancels):
                return f"[{index}] {found}"
        return None
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or actual.keys() != expected.keys():
            return "has other keys than the CPU's"
        for key, entry in expected.items():
            if found := difference(actual[key], entry, device, values, strides, cancels):
                return f"[{key!r}] {found}"
        return None
    if isinstance(expected, torch.device):
        return None if torch.device(actual).type == torch.device(device).type else f"names {actual}"
    if not values or actual == expected or (actual != actual and expected != expected):
        return None
    if isinstance(expected, (float, complex)) and abs(actual - expected) <= 1e-5 * max(1.0, abs(expected)):
        return None
    return f"is {actual!r}, the CPU's is {expected!r}"


def _tensor_difference(
    actual: torch.Tensor, expected: torch.Tensor, device: str, values: bool, strides: bool, cancels: bool
) -> str | None:
    if actual.device.type != torch.device(device).type:
        return f"is on {actual.device}"
    if actual.dtype != expected.dtype:
        return f"has dtype {actual.dtype}, the CPU's has {expected.dtype}"
    if actual.layout != expected.layout:
        return f"has layout {actual.layout}, the CPU's has {expected.layout}"
    plain = expected.layout == torch.strided and not expected.is_nested
    if plain and actual.shape != expected.shape:
        return f"has shape {tuple(actual.shape)}, the CPU's has {tuple(expected.shape)}"
    if plain and strides and expected.numel() and _layout(actual) != _layout(expected):
        return f"has strides {actual.stride()}, the CPU's has {expected.stride()} for shape {tuple(expected.shape)}"
    return _value_difference(_dense(actual).cpu(), _dense(expected), cancels) if values else None


def _value_difference(actual: torch.Tensor, expected: torch.Tensor, cancels: bool) -> str | None:
    if actual.shape != expected.shape:
        return f"has shape {tuple(actual.shape)}, the CPU's has {tuple(expected.shape)}"
    relative, absolute = TOLERANCE.get(expected.dtype, (0.0, 0.0))
    wide = COMPARED_AS.get(expected.dtype, expected.dtype)
    actual, expected = actual.to(wide), expected.to(wide)
    if torch.equal(actual, expected):
        return None
    if cancels:
        absolute = 2 * max(absolute, torch.finfo(wide).eps) * max(1.0, expected.abs().max().item())
    try:
        torch.testing.assert_close(actual, expected, rtol=relative, atol=absolute, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())
    return None
