"""Turns a program that was quantised after torch.export (PT2E) into one that runs with int8 weights."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

# torch 2.13 has moved quantisation after export out of its own tree; programs still name the older place.
HOMES = ("torchao.quantization.pt2e.lowering", "torch.ao.quantization.pt2e.lowering")
_NAME = "lower_pt2e_quantized_to_x86"


def lower_pt2e_quantized_to_x86(model: nn.Module, example_inputs: tuple[Any, ...]) -> GraphModule:
    """The program of `model`, which holds quantized_decomposed operators, with its constants folded.

    A model on the CPU gets Inductor's x86 passes: int8 oneDNN kernels with packed weights. A model or an input on musa
    gets a program for the card: weights lie there as int8 and are dequantised where they are used, the operators
    between are the float ones. `example_inputs`: the positional arguments, as for torch.export.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"{_NAME}: model is a {type(model).__name__}, it must be a torch.nn.Module")
    if not isinstance(example_inputs, tuple):
        raise TypeError(
            f"{_NAME}: example_inputs is a {type(example_inputs).__name__}, it must be a tuple of arguments"
        )
    from torch._inductor.constant_folding import constant_fold
    from torch._inductor.fx_passes.freezing_patterns import freezing_passes

    with torch.no_grad():
        lowered: Any = torch.export.export(model, example_inputs).run_decompositions().module()
        if not _on_musa(model, example_inputs):
            # Inductor matches its patterns on flat arguments.
            freezing_passes(lowered, pytree.tree_leaves(example_inputs))  # type: ignore[no-untyped-call]
        constant_fold(lowered)
    for node in lowered.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default  # int8 kernels give other strides than those that were traced
    lowered.recompile()
    program: GraphModule = lowered
    return program


def apply_lowering_patch() -> None:
    """Makes the quantisation package's own `lower_pt2e_quantized_to_x86` take models on musa; others it lowers itself.

    ImportError when neither torchao nor torch has the function; the one of this module works without.
    """
    found = False
    for home in HOMES:
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as missing:
            if not home.startswith(str(missing.name)):
                raise
            continue
        original: Callable[..., GraphModule] = getattr(module, _NAME)
        if not hasattr(original, "_takes_musa"):
            setattr(module, _NAME, _taking_musa(original))
        found = True
    if not found:
        raise ImportError(
            f"there is no {_NAME} to patch: torch {torch.__version__} has none, install torchao, or call "
            f"torch_musa.core.lowering.{_NAME}"
        )


def _taking_musa(original: Callable[..., GraphModule]) -> Callable[..., GraphModule]:
    @functools.wraps(original)
    def lower(model: nn.Module, example_inputs: tuple[Any, ...]) -> GraphModule:
        chosen = lower_pt2e_quantized_to_x86 if _on_musa(model, example_inputs) else original
        return chosen(model, example_inputs)

    lower._takes_musa = True  # type: ignore[attr-defined]
    return lower


def _on_musa(model: nn.Module, inputs: Any) -> bool:
    given = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    return any(tensor.device.type == "musa" for tensor in (*model.parameters(), *model.buffers(), *given))
