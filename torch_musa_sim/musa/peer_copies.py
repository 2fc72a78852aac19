"""Copies between the cards of one process: what torch.nn.parallel (DataParallel, scatter, gather, ...) is made of.

torch builds these functions for CUDA only, as torch._C._broadcast and so on; `install` puts ours there. All copies go
from card to card.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

from torch_musa_sim.musa.streams import stream as _use_stream

_Streams = Sequence[torch.Stream | None] | None


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """A copy of `tensor` on each card, in order; on the card where it lies already, itself."""
    return [_copy_to(tensor, torch.device("musa", index)) for index in _some(devices, "broadcast")]


def broadcast_out(tensor: Tensor, out_tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies `tensor` into each of `out_tensors`, musa tensors of its shape, and returns them."""
    for position, out in enumerate(out_tensors):
        _check_out(out, position, "broadcast")
        if out.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {tuple(tensor.shape)}, but "
                f"output tensor at index {position} has shape {tuple(out.shape)}"
            )
        out.copy_(tensor, non_blocking=True)
    return list(out_tensors)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """A copy of each of `tensors`, which lie on the first card of `devices`, on each card: a list for each card.

    Small tensors travel together, up to `buffer_size` bytes in one copy; the first card's list holds the tensors
    themselves. The copies of one buffer have version counters of their own.
    """
    devices = _some(devices, "broadcast_coalesced")
    home = torch.device("musa", devices[0])
    for position, tensor in enumerate(tensors):
        if tensor.device != home:
            raise RuntimeError(
                f"all tensors must be on devices[0]: {devices[0]}, but tensor {position} is on {tensor.device}"
            )
    results: list[list[Tensor]] = [list(tensors)]
    for index in devices[1:]:
        target = torch.device("musa", index)
        copies: dict[int, Tensor] = {}
        positions = {id(tensor): position for position, tensor in reversed(list(enumerate(tensors)))}
        for chunk in _take_tensors([tensor for tensor in tensors if not tensor.is_sparse], buffer_size):
            if len(chunk) == 1:
                moved: Sequence[Tensor] = [_copy_to(chunk[0], target)]
            else:
                moved = _unflatten_dense_tensors(_copy_to(_flatten_dense_tensors(chunk), target), chunk)
            for source, copy in zip(chunk, moved, strict=True):
                copies[positions[id(source)]] = copy.data
        results.append(
            [
                copies[positions[id(tensor)]] if positions[id(tensor)] in copies else _copy_to(tensor, target)
                for tensor in tensors
            ]
        )
    return results


def scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: _Streams = None
) -> list[Tensor]:
    """Splits `tensor` (of the cpu or a card) along `dim`, one part for each card of `devices`; -1 means the cpu.

    chunk_sizes: the sizes of the parts; None for equal ones, in which case the last cards may get none. streams: what
    each copy is launched on, None for the current streams.
    """
    devices = _some(devices, "scatter")
    if chunk_sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        if len(chunk_sizes) != len(devices):
            raise RuntimeError(
                f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {len(devices)} and "
                f"len(chunk_sizes) = {len(chunk_sizes)}"
            )
        parts = tensor.split_with_sizes(list(chunk_sizes), dim)
    results = []
    for position, part in enumerate(parts):
        target = torch.device("cpu") if devices[position] < 0 else torch.device("musa", devices[position])
        chosen = streams[position] if streams is not None else None
        if chosen is not None and chosen.device != target:
            raise RuntimeError(
                f"Expected the device associated with the stream at index {position} ({chosen.device}) to match the "
                f"device supplied at that index ({target})"
            )
        with _use_stream(chosen):
            results.append(part.to(target, non_blocking=True, copy=False).contiguous())
    return results


def scatter_out(tensor: Tensor, out_tensors: Sequence[Tensor], dim: int, streams: _Streams = None) -> Sequence[Tensor]:
    """As `scatter` into `out_tensors`, whose sizes along `dim` say how much each takes."""
    out_tensors = _some(out_tensors, "scatter")
    for position, out in enumerate(out_tensors):
        _check_out(out, position, "scatter")
    parts = tensor.split_with_sizes([out.size(dim) for out in out_tensors], dim)
    for position, (part, out) in enumerate(zip(parts, out_tensors, strict=True)):
        with _use_stream(streams[position] if streams is not None else None):
            out.copy_(part, non_blocking=True)
    return out_tensors


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    """The musa tensors one behind the other along `dim`, on card `destination`: -1 the cpu, None the current one."""
    tensors = _some(tensors, "gather")
    first = tensors[0]
    for position, tensor in enumerate(tensors):
        _check_in(tensor, position)
        if tensor.dim() != first.dim():
            raise RuntimeError(
                f"Expected all input tensors to have the same number of dimensions, but got {tensor.dim()} for the "
                f"tensor at index {position} and {first.dim()} for the first one"
            )
    if destination is None:
        target = torch.device("musa", torch.accelerator.current_device_index())
    else:
        target = torch.device("cpu") if destination < 0 else torch.device("musa", destination)
    layouts = {torch._prims_common.suggest_memory_format(tensor) for tensor in tensors if tensor.dim() in (4, 5)}
    result = torch.cat([_copy_to(tensor, target) for tensor in tensors], dim)
    return result.contiguous(memory_format=layouts.pop()) if len(layouts) == 1 else result


def gather_out(tensors: Sequence[Tensor], out_tensor: Tensor, dim: int) -> Tensor:
    """As `gather` into `out_tensor`, of a card or the cpu."""
    tensors = _some(tensors, "gather")
    for position, tensor in enumerate(tensors):
        _check_in(tensor, position)
    parts = out_tensor.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor, non_blocking=out_tensor.device.type == "musa")
    return out_tensor


def _copy_to(tensor: Tensor, target: torch.device) -> Tensor:
    return tensor.to(target, non_blocking=target.type == "musa")


def _some(given: Any, what: str) -> list[Any]:
    listed = list(given)
    if not listed:
        raise RuntimeError(f"Expected at least one element in {what}'s list of devices or tensors")
    return listed


def _check_in(tensor: Tensor, position: int) -> None:
    if tensor.device.type != "musa":
        raise RuntimeError(
            f"Expected all input tensors to be on musa cards, but the tensor at index {position} is on {tensor.device}"
        )


def _check_out(tensor: Tensor, position: int, what: str) -> None:
    if tensor.device.type != "musa":
        raise RuntimeError(
            f"Expected all output tensors of {what} to be on musa cards, but the tensor at index {position} is on "
            f"{tensor.device}"
        )


def _quiet_on_musa(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def is_available(tensors: Any) -> bool:
        """Whether NCCL can reduce these tensors. Not on musa, which needs no warning: torch adds them up then."""
        if all(isinstance(tensor, Tensor) and tensor.device.type == "musa" for tensor in tensors):
            return False
        return original(tensors)

    return is_available


def install() -> None:
    """Gives torch._C the functions that a build without CUDA lacks; what is there stays."""
    for function in (broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out):
        name = f"_{function.__name__}"
        if not hasattr(torch._C, name):
            setattr(torch._C, name, function)
    torch.cuda.nccl.is_available = _quiet_on_musa(torch.cuda.nccl.is_available)
