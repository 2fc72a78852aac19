"""Comparison and description of nested results: tensors in lists, tuples and dicts."""

from collections.abc import Callable
from typing import Any

import torch

_SHOWN = 20


def recursive_apply(func: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    """A function that puts `func(copy of tensor)` in the place of every tensor in nested lists, tuples and dicts."""

    def apply(inputs: Any) -> Any:
        if isinstance(inputs, torch.Tensor):
            return func(inputs.detach().clone())
        if isinstance(inputs, dict):
            return {key: apply(value) for key, value in inputs.items()}
        if isinstance(inputs, (list, tuple)):
            return type(inputs)(map(apply, inputs))
        return inputs

    return apply


def convert_to_dtype(inputs: Any, dtype: torch.dtype) -> Any:
    """Copies with every floating-point tensor in `dtype`."""
    return recursive_apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)(inputs)


def convert_to_cpu(inputs: Any) -> Any:
    """Copies with every tensor on the CPU; a torch.device inside becomes cpu."""
    return _on(inputs, "cpu")


def convert_to_musa(inputs: Any) -> Any:
    """Copies with every tensor on the current card; a torch.device inside becomes musa."""
    return _on(inputs, "musa")


def _on(inputs: Any, device: str) -> Any:
    if isinstance(inputs, torch.device):
        return torch.device(device)
    if isinstance(inputs, dict):
        return {key: _on(value, device) for key, value in inputs.items()}
    if isinstance(inputs, (list, tuple)) and not isinstance(inputs, torch.Size):
        return type(inputs)(_on(value, device) for value in inputs)
    return recursive_apply(lambda tensor: tensor.to(device))(inputs)


def compare_tensors(tensor1: torch.Tensor, tensor2: torch.Tensor, atol: float, rtol: float) -> torch.Tensor:
    """bool tensor: where |tensor1 - tensor2| > atol + rtol * |tensor2|, or only one of the two is NaN, or infinite.

    Shapes must agree (RuntimeError); dtype and device are those of tensor2.
    """
    if tensor1.shape != tensor2.shape:
        raise RuntimeError(f"tensors of shapes {tuple(tensor1.shape)} and {tuple(tensor2.shape)} can't be compared")
    return ~torch.isclose(tensor1.to(tensor2), tensor2, rtol=rtol, atol=atol, equal_nan=True)


def print_tensors_diff(tensor1: torch.Tensor, tensor2: torch.Tensor, atol: float, rtol: float) -> None:
    """Prints the first elements that differ, then both tensors."""
    where = compare_tensors(tensor1, tensor2, atol, rtol).nonzero().cpu().tolist()
    if len(where) > _SHOWN:
        print(f"{len(where)} elements are not close; the first {_SHOWN}:")
    for index in map(tuple, where[:_SHOWN]):
        values = f"{tensor1[index].item()}({tensor1.device}) vs {tensor2[index].item()}({tensor2.device})"
        print(f"Element at index {index} is not close: {values}")
    for tensor in (tensor1, tensor2):
        print(format_tensor(tensor))
        print(tensor)


def recursive_compare(out1: Any, out2: Any, atol: float, rtol: float, depth: int = 0) -> bool:
    """Whether two nested results agree in structure and values; prints what doesn't."""
    if isinstance(out1, torch.Tensor) and isinstance(out2, torch.Tensor):
        if out1.shape != out2.shape:
            print(f"Tensor shapes are not equal: {tuple(out1.shape)} vs {tuple(out2.shape)}")
            return False
        if not bool(compare_tensors(out1, out2, atol, rtol).any()):
            return True
        print("Tensor values are not close")
        print_tensors_diff(out1, out2, atol, rtol)
        return False
    if isinstance(out1, dict) and isinstance(out2, dict):
        if out1.keys() != out2.keys():
            print(f"Keys are not equal: {list(out1)} vs {list(out2)}")
            return False
        out1, out2 = list(out1.values()), [out2[key] for key in out1]
    if isinstance(out1, (list, tuple)) and isinstance(out2, (list, tuple)):
        if len(out1) != len(out2):
            print(f"Lengths are not equal: {len(out1)} vs {len(out2)}")
            return False
        results = [recursive_compare(*pair, atol, rtol, depth + 1) for pair in zip(out1, out2, strict=True)]
        for position, result in enumerate(results):
            if not result:
                print(f"{'  ' * depth}output {position} is not close")
        return all(results)
    if out1 == out2 or (out1 != out1 and out2 != out2):
        return True
    print(f"Values are not equal: {out1} vs {out2}")
    return False


def format_tensor(tensor: torch.Tensor) -> str:
    """One line about a tensor; "[WARNING]" in front of one that holds NaN or infinity."""
    nan, inf = (int(check(tensor).sum()) for check in (torch.isnan, torch.isinf))
    warning = f"nan_num={nan}, inf_num={inf}, " if nan or inf else ""
    return (
        f"{'[WARNING] ' if warning else ''}Tensor <shape={tensor.shape}, dtype={tensor.dtype}, device={tensor.device}, "
        f"size={tensor.numel()}, {warning}>"
    )


def recursive_print(args: Any, top_level: bool = True) -> str:
    """Describes nested arguments, one a line at the top level, prints that (at the top level) and returns it."""
    if isinstance(args, torch.Tensor):
        text = format_tensor(args)
    elif isinstance(args, dict):
        text = ", ".join(f"{key}: {recursive_print(value, False)}" for key, value in args.items())
    elif isinstance(args, (list, tuple)):
        parts = [recursive_print(value, False) for value in args]
        if top_level:
            text = "\n".join(f"{position}: {part}, " for position, part in enumerate(parts))
        else:
            opening, closing = "[]" if isinstance(args, list) else "()"
            text = opening + ", ".join(parts) + closing
    else:
        text = str(args)
    if top_level:
        print(text)
    return text


def has_nan_or_inf(values: Any) -> bool:
    """Whether a floating-point tensor anywhere in nested values holds NaN or infinity."""
    if isinstance(values, torch.Tensor):
        return (values.is_floating_point() or values.is_complex()) and not bool(torch.isfinite(values).all())
    if isinstance(values, dict):
        values = list(values.values())
    return isinstance(values, (list, tuple)) and any(map(has_nan_or_inf, values))
