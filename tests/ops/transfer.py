"""Carries test arguments to a device with their exact layout: strides, offset, shared storage, conj and neg bits."""

from typing import Any

import torch

# Strings that name a device among the arguments.
DEVICES = ("cpu", "musa")


class Transfer:
    """Copies nested arguments to `device`. Two views of one storage stay two views of one storage."""

    def __init__(self, device: str, cast: dict[torch.dtype, torch.dtype] | None = None) -> None:
        self.device = torch.device(device)
        self.cast = cast or {}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._keep: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        if isinstance(value, dict):
            return {key: self(entry) for key, entry in value.items()}
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if isinstance(value, torch.dtype):
            return self.cast.get(value, value)
        if isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in DEVICES):
            return type(value)(self.device) if isinstance(value, torch.device) else str(self.device)
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed() % 2**63)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        source = tensor.detach()
        if source.layout != torch.strided or source.is_nested or type(source) is not torch.Tensor:
            moved = source.to(self.device, copy=True)
        elif source.dtype in self.cast:
            moved = source.to(self.cast[source.dtype]).to(self.device)
        else:
            moved = self._strided(source)
        return moved.requires_grad_() if tensor.requires_grad else moved

    def _strided(self, source: torch.Tensor) -> torch.Tensor:
        storage = source.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._keep.append(source)
            flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self._storages[key] = flat.to(self.device, copy=True).untyped_storage()
        moved = torch.empty(0, dtype=source.dtype, device=self.device)
        moved.set_(self._storages[key], source.storage_offset(), source.size(), source.stride())
        if source.is_conj():
            moved = moved.conj()
        return torch._neg_view(moved) if source.is_neg() else moved
