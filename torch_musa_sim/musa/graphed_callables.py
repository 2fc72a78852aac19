"""Functions and modules whose forward and backward passes are replayed graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from torch_musa_sim.musa.device import synchronize
from torch_musa_sim.musa.graph_capture import MUSAGraph, PoolHandle, graph
from torch_musa_sim.musa.memory_pools import graph_pool_handle
from torch_musa_sim.musa.streams import Stream
from torch_musa_sim.musa.streams import stream as _use_stream

Graphable = torch.nn.Module | Callable[..., object]


@dataclass
class _Captured:
    """The two graphs of one callable and the tensors that they read and write."""

    forward: MUSAGraph
    backward: MUSAGraph
    argument_count: int
    inputs: tuple[torch.Tensor, ...]  # arguments, then parameters
    outputs: tuple[torch.Tensor, ...] = ()
    output_spec: Any = None
    grad_outputs: tuple[torch.Tensor | None, ...] = ()
    grad_inputs: tuple[torch.Tensor | None, ...] = ()


def make_graphed_callables(
    callables: Graphable | tuple[Graphable, ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Captures the forward and the backward pass of each callable and returns replacements that replay them.

    callables: a function or module, or a tuple of them in the order in which they will run. sample_args: tensors like
    those of later calls (shape, dtype, requires_grad), a tuple of them for each callable. A module is changed in place
    and keeps its original forward for the other training mode. allow_unused_input: inputs that don't influence the
    outputs get a gradient of None instead of an error. pool: memory to share. Returned callables take tensors in the
    same order and give no second derivatives. Autocast needs cache_enabled=False.
    """
    if torch.is_autocast_enabled("musa") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    single = not isinstance(callables, tuple)
    functions: tuple[Graphable, ...] = callables if isinstance(callables, tuple) else (callables,)
    arguments: tuple[tuple[Any, ...], ...] = (sample_args,) if single else sample_args
    if len(functions) != len(arguments):
        raise ValueError(
            f"make_graphed_callables got {len(functions)} callables and sample_args for {len(arguments)}; each needs a "
            "tuple of sample arguments"
        )
    captured = [_prepare(function, args) for function, args in zip(functions, arguments, strict=True)]
    _warm_up(functions, arguments, captured, num_warmup_iters, allow_unused_input)
    memory = graph_pool_handle() if pool is None else pool
    # One pool for all, so captures must come in the order of the replays: forward passes, then backward from the last.
    for function, args, one in zip(functions, arguments, captured, strict=True):
        _capture_forward(function, args, one, memory)
    for one in reversed(captured):
        _capture_backward(one, memory, allow_unused_input)
    pairs = [
        (value, grad)
        for one in captured
        for value, grad in zip(one.inputs, one.grad_inputs, strict=True)
        if grad is not None and value.is_leaf
    ]
    replacements = [_replacement(function, one, pairs) for function, one in zip(functions, captured, strict=True)]
    return replacements[0] if single else tuple(replacements)


def _prepare(function: Graphable, args: tuple[Any, ...]) -> _Captured:
    leaves = _pytree.arg_tree_leaves(*args)
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise TypeError(
            "make_graphed_callables: sample_args for each callable must contain only Tensors. Other types are not "
            "allowed; bind them with functools.partial or a lambda."
        )
    parameters: tuple[torch.Tensor, ...] = ()
    if isinstance(function, torch.nn.Module):
        if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
            raise RuntimeError(
                "Modules must not have hooks registered at the time they are passed. However, registering hooks on "
                "modules after passing them through make_graphed_callables is allowed."
            )
        if any(buffer.requires_grad for buffer in function.buffers()):
            raise RuntimeError(
                "In any torch.nn.Module passed to make_graphed_callables, only parameters may be trainable. All "
                "buffers must have ``requires_grad=False``."
            )
        parameters = tuple(function.parameters())
    return _Captured(MUSAGraph(), MUSAGraph(), len(leaves), (*leaves, *parameters))


def _differentiable(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.requires_grad)


def _gradients(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], grads: Sequence[torch.Tensor], unused: bool
) -> tuple[torch.Tensor | None, ...]:
    return torch.autograd.grad(
        outputs=_differentiable(outputs),
        inputs=_differentiable(inputs),
        grad_outputs=grads,
        only_inputs=True,
        allow_unused=unused,
    )


def _warm_up(
    functions: Sequence[Graphable],
    arguments: Sequence[tuple[Any, ...]],
    captured: Sequence[_Captured],
    iterations: int,
    unused: bool,
) -> None:
    """Runs each callable outside of a capture, so that what it does only the first time isn't captured."""
    synchronize()
    with _use_stream(Stream()):
        for function, args, one in zip(functions, arguments, captured, strict=True):
            for _ in range(iterations):
                outputs = _pytree.tree_leaves(function(*args))
                results = _differentiable(outputs)
                if results:
                    _gradients(results, one.inputs, [torch.empty_like(result) for result in results], unused)
    synchronize()


def _capture_forward(function: Graphable, args: tuple[Any, ...], one: _Captured, memory: PoolHandle) -> None:
    with graph(one.forward, pool=memory):
        result = function(*args)
    leaves, one.output_spec = _pytree.tree_flatten(result)
    one.outputs = tuple(leaves)


def _capture_backward(one: _Captured, memory: PoolHandle, unused: bool) -> None:
    one.grad_outputs = tuple(torch.empty_like(out) if out.requires_grad else None for out in one.outputs)
    found: tuple[torch.Tensor | None, ...] = ()
    if _differentiable(one.outputs):
        with graph(one.backward, pool=memory):
            grads = [grad for grad in one.grad_outputs if grad is not None]
            found = _gradients(one.outputs, one.inputs, grads, unused)
    rest = iter(found)
    one.grad_inputs = tuple(next(rest) if found and value.requires_grad else None for value in one.inputs)


def _keep_gradients(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Saves gradients that autograd has taken over from a replay, as the next one would overwrite them."""
    for value, grad in pairs:
        if value.grad is not None and value.grad.data_ptr() == grad.data_ptr():
            value.grad = value.grad.clone()


def _replacement(function: Graphable, one: _Captured, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Graphable:
    """`pairs`: each parameter with its static gradient, of all callables that share the pool."""

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for static, given in zip(one.inputs[: one.argument_count], inputs, strict=False):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            _keep_gradients(pairs)
            one.forward.replay()
            ctx.leaves = [value.is_leaf for value in inputs[: one.argument_count]]
            return tuple(output.detach() for output in one.outputs)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            for static, given in zip(one.grad_outputs, grads, strict=True):
                if static is not None and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            _keep_gradients(pairs)
            one.backward.replay()
            leaves = [*ctx.leaves, *(False for _ in one.inputs[one.argument_count :])]
            return tuple(
                None if grad is None else grad.clone() if leaf else grad.detach()
                for grad, leaf in zip(one.grad_inputs, leaves, strict=True)
            )

    def graphed(*args: Any) -> Any:
        leaves = _pytree.arg_tree_leaves(*args)
        if len(leaves) != one.argument_count:
            raise TypeError(
                f"the graphed callable was captured with {one.argument_count} tensors and got {len(leaves)}; "
                "call it as its sample_args were"
            )
        return _pytree.tree_unflatten(list(Graphed.apply(*leaves, *one.inputs[one.argument_count :])), one.output_spec)

    if not isinstance(function, torch.nn.Module):
        return graphed
    original, training = function.forward, function.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        # The graph holds one of the two modes; the other one runs as ever.
        if function.training == training:
            return graphed(*args, **kwargs)
        return original(*args, **kwargs)

    function.forward = forward
    return function
