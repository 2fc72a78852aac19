"""A function on musa tensors, captured into a musa graph at its second call and replayed from then on."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from torch_musa_sim import musa

Boxed = Callable[[list[Any]], Sequence[Any]]


def why_not_graphed(gm: fx.GraphModule, static: Sequence[int], mutated: Sequence[int]) -> str | None:
    """What keeps a traced graph from being captured, in words; None when nothing does.

    static: positions of inputs whose memory stays (parameters). mutated: positions of inputs that are written.
    """
    placeholders = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    output = next(iter(reversed(gm.graph.nodes)))
    results = [node.meta.get("val") for node in output.args[0] if isinstance(node, fx.Node)]
    tensors = [value for value in (*placeholders, *results) if isinstance(value, torch.Tensor)]
    if any(isinstance(value, torch.SymInt | torch.SymFloat) for value in placeholders):
        return "its shapes are dynamic"
    if any(tensor.device.type != "musa" for tensor in tensors):
        return "it has inputs or results on the cpu"
    if len({tensor.device for tensor in tensors}) > 1:
        return "it works on several cards"
    if set(mutated) - set(static):
        return "it changes an input in place"
    return None


def warn_not_graphed(name: str, reason: str) -> None:
    """Says once that a graph runs without being captured."""
    warnings.warn(f"{name} runs without a musa graph, as {reason}", stacklevel=3)


class GraphedCode:
    """Runs `code` plainly once, then captures it, then replays. Called with a list of inputs that it empties.

    static: positions of inputs that are read where they lie; all others are copied into the graph's own memory. Results
    are copies, so that a later replay doesn't change them. A capture that fails is given up with one warning.
    """

    def __init__(self, code: Boxed, static: Sequence[int], name: str) -> None:
        self._code = code
        self._static = frozenset(static)
        self._name = name
        self._calls = 0
        self._capture: _Capture | None = None
        self._given_up = False

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        self._calls += 1
        if self._given_up or self._calls == 1 or musa.is_current_stream_capturing():
            return self._code(inputs)
        if self._capture is None or not self._capture.fits(inputs):
            self._capture = None  # its memory goes back first
            try:
                self._capture = _Capture(self._code, self._static, inputs)
            except Exception as error:
                self._given_up = True
                warn_not_graphed(self._name, f"its capture failed: {error}")
                return self._code(inputs)
        return self._capture.replay(inputs)


class _Capture:
    def __init__(self, code: Boxed, static: frozenset[int], inputs: Sequence[Any]) -> None:
        from torch._inductor.compile_fx import clone_preserve_strides

        self._copy = clone_preserve_strides
        self._copied = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and i not in static]
        buffers = list(inputs)
        for i in self._copied:
            buffers[i] = clone_preserve_strides(inputs[i])
        self._buffers = {i: buffers[i] for i in self._copied}
        self._fixed = {i: inputs[i].data_ptr() for i in static if isinstance(inputs[i], torch.Tensor)}
        self._graph = musa.MUSAGraph()
        kept = list(buffers)
        with musa.graph(self._graph, capture_error_mode="thread_local"):
            self._results = list(code(buffers))
        # A result that is an input is handed out as the input of each call.
        self._returned = {
            r: next((i for i, value in enumerate(kept) if value is result), None)
            for r, result in enumerate(self._results)
            if isinstance(result, torch.Tensor)
        }

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs that are read where they lie still lie there."""
        return all(inputs[i].data_ptr() == address for i, address in self._fixed.items())

    def replay(self, inputs: list[Any]) -> list[Any]:
        for i, buffer in self._buffers.items():
            _fill(buffer, inputs[i])
        self._graph.replay()
        results = []
        for r, result in enumerate(self._results):
            returned = self._returned.get(r)
            if returned is not None:
                result = inputs[returned]
            elif isinstance(result, torch.Tensor):
                result = self._copy(result)
            results.append(result)
        inputs.clear()
        return results


def _fill(buffer: torch.Tensor, value: torch.Tensor) -> None:
    """Copies a tensor into one of the same sizes and strides."""
    if torch._debug_has_internal_overlap(buffer) == 1:  # an expanded one, which copy_ refuses to write
        extent = 1 + sum((size - 1) * stride for size, stride in zip(buffer.shape, buffer.stride(), strict=True))
        buffer, value = (tensor.as_strided((extent,), (1,)) for tensor in (buffer, value))
    buffer.copy_(value)
