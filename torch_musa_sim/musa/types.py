"""Legacy classes: `torch.musa.FloatStorage` and `torch.musa.FloatTensor`, one of each for every dtype that CUDA has.

A storage class is what `torch.save` and `TypedStorage.type()` name. A tensor class can be called as torch.FloatTensor
can, is what `isinstance` and `tensor.type(cls)` accept, and never is the type of a tensor.
"""

from typing import Any, cast

import torch
from torch.storage import _LegacyStorage

_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_STORAGE_ONLY = {"ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64}


class _LegacyTensorMeta(type):
    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device.type == "musa" and instance.dtype == cls.dtype

    def __call__(cls, *arguments: Any) -> torch.Tensor:
        """A tensor from sizes (uninitialised), from a sequence, or sharing a tensor of the same type."""
        if len(arguments) == 1 and isinstance(arguments[0], torch.Tensor):
            if not isinstance(arguments[0], cls):
                raise TypeError(f"{cls.__name__} takes a tensor of its own type, but got {arguments[0].type()}")
            return arguments[0].detach()
        if len(arguments) == 1 and isinstance(arguments[0], (list, tuple)) and not isinstance(arguments[0], torch.Size):
            return torch.tensor(arguments[0], dtype=cls.dtype, device="musa")
        return torch.empty(*(arguments or (0,)), dtype=cls.dtype, device="musa")


def _storage_class(name: str, dtype: torch.dtype) -> type:
    # torch reads the device from the class's module.
    meta: Any = type(_LegacyStorage)
    return cast(type, meta(f"{name}Storage", (_LegacyStorage,), {"dtype": dtype, "__module__": "torch.musa"}))


def _tensor_class(name: str, dtype: torch.dtype) -> type:
    # The dots belong to the name: torch reads the whole type string from there.
    return _LegacyTensorMeta(
        f"torch.musa.{name}Tensor", (), {"dtype": dtype, "__module__": "torch.musa", "__qualname__": f"{name}Tensor"}
    )


LEGACY_TYPES: dict[str, type] = {
    **{f"{name}Storage": _storage_class(name, dtype) for name, dtype in (_DTYPES | _STORAGE_ONLY).items()},
    **{f"{name}Tensor": _tensor_class(name, dtype) for name, dtype in _DTYPES.items()},
}
