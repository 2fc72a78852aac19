"""One operator on musa against a reference on the CPU: values, gradients, out= and the operator in place."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .comparators import AbsDiffComparator, Comparator, DefaultComparator

Results = list[torch.Tensor]


def _map(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_map(inner, change) for inner in value)
    return value


def _tensors(value: Any) -> Results:
    found: Results = []
    _map(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


class OpTest:
    """Runs an operator on both devices and compares.

    func: the operator, or a class of modules. refer_func: the reference, by default `func`. input_args: its keyword
    arguments; for a class those of the constructor, the call's come with `inputs`. comparators: one for all results.
    ignored_result_indices: results that aren't compared. seed: set before each run. test_dtype: floating-point tensors
    are converted to it.
    """

    def __init__(
        self,
        func: Callable[..., Any] | None = None,
        refer_func: Callable[..., Any] | None = None,
        input_args: dict[str, Any] | None = None,
        comparators: Comparator = DefaultComparator(equal_nan=True),  # noqa: B008 - it has no state
        ignored_result_indices: Sequence[int] | None = None,
        seed: int = 42,
        test_dtype: torch.dtype | None = None,
    ) -> None:
        if func is None:
            raise ValueError("OpTest needs func, the operator to test")
        self._func = func
        self._refer_func = refer_func or func
        self._input_args = dict(input_args or {})
        self._comparators = comparators
        self._ignored = frozenset(ignored_result_indices or ())
        self._seed = seed
        self._dtype = test_dtype

    @staticmethod
    def test_low_vs_high_dec(low_dtype: torch.dtype) -> Comparator:
        """The comparator for a result computed in `low_dtype` against one in float32: a few units of its precision."""
        precision = torch.finfo(low_dtype).eps
        return DefaultComparator(abs_diff=4 * precision, rel_diff=4 * precision, equal_nan=True)

    def set_random_seed(self) -> None:
        """Seeds torch, on all devices, and numpy."""
        torch.manual_seed(self._seed)
        np.random.seed(self._seed % 2**32)

    def deep_copy_dict(self, args: dict[str, Any]) -> dict[str, Any]:
        """A copy whose tensors are leaves of their own."""
        return {key: self._copied(value) for key, value in args.items()}

    @staticmethod
    def _copied(value: Any) -> Any:
        return _map(copy.copy(value), lambda t: t.detach().clone().requires_grad_(t.requires_grad))

    def wrap_everything(
        self, x: Any, device: str, compute_dtype: torch.dtype | None = None, dtype_nocast: bool = False
    ) -> Any:
        """`x` with its arrays and tensors on `device`, floating-point ones in `compute_dtype` unless dtype_nocast."""

        def wrap(tensor: torch.Tensor) -> torch.Tensor:
            cast = compute_dtype if compute_dtype and tensor.is_floating_point() and not dtype_nocast else tensor.dtype
            return tensor.detach().to(device, cast, copy=True).requires_grad_(tensor.requires_grad)

        return _map(x, wrap)

    def args_to_device(self, args: Any, device: str, requires_grad: bool = False) -> Any:
        """Nested arguments on `device`; with `requires_grad` the floating-point ones ask for gradients."""

        def move(tensor: torch.Tensor) -> torch.Tensor:
            wants = tensor.requires_grad or (requires_grad and tensor.is_floating_point())
            return tensor.detach().to(device, copy=True).requires_grad_(wants)

        return _map(args, move)

    def args_to_dtype(self, args: Any, dtype: torch.dtype) -> Any:
        """Nested arguments with floating-point tensors in `dtype`."""
        return _map(
            args,
            lambda t: t.detach().to(dtype).requires_grad_(t.requires_grad) if t.is_floating_point() else t,
        )

    def get_addr_list_of_args(self, args: Any) -> list[int]:
        """data_ptr of every tensor in nested arguments, in order."""
        return [tensor.data_ptr() for tensor in _tensors(args)]

    def maybe_retain_and_zero_grad(self, param: Any, train: bool = False) -> None:
        """In training, lets every tensor that asks for gradients keep one and start from none."""
        for tensor in _tensors(param) if train else []:
            if tensor.requires_grad:
                tensor.retain_grad()
                tensor.grad = None

    def maybe_retain_and_zero_nn_modules_grad(self, module: torch.nn.Module, train: bool = False) -> None:
        """As maybe_retain_and_zero_grad for a module's parameters."""
        if train:
            module.zero_grad(set_to_none=True)

    def run_backward(self, reduce: Any) -> None:
        """Backward from the sum of every result that has a gradient."""
        differentiable = [tensor for tensor in _tensors(reduce) if tensor.requires_grad]
        if not differentiable:
            raise RuntimeError("train=True, but no result depends on an input that requires a gradient")
        torch.autograd.backward([tensor.sum() for tensor in differentiable])

    def save_gradients(self, inputs: Any, grads: Results) -> None:
        """Appends the gradients of nested inputs, on the CPU, to `grads`."""
        grads += [tensor.grad.cpu() for tensor in _tensors(inputs) if tensor.grad is not None]

    def _run(
        self,
        func: Callable[..., Any],
        inputs: Any,
        device: str,
        dtype: torch.dtype | None,
        train: bool,
        test_out: bool,
        autocast: torch.dtype | None = None,
    ) -> Results:
        self.set_random_seed()
        args = self.wrap_everything(self.deep_copy_dict(self._input_args), device, dtype)
        call_args: tuple[Any, ...] = ()
        call_kwargs = args
        if isinstance(func, type) and issubclass(func, torch.nn.Module):
            module = func(**args).to(device, dtype)
            func, call_kwargs = module, {}
        if isinstance(inputs, dict):
            call_kwargs = call_kwargs | self.wrap_everything(self.deep_copy_dict(inputs), device, dtype)
        elif inputs is not None:
            listed = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            call_args = tuple(self.wrap_everything(self._copied(list(listed)), device, dtype))
        given = (call_args, call_kwargs, func)
        self.maybe_retain_and_zero_grad((call_args, call_kwargs), train)
        context = torch.autocast(device, autocast, enabled=autocast is not None)
        with torch.set_grad_enabled(train), context:
            result = func(*call_args, **call_kwargs)
        if train:
            self.run_backward(result)
        results = [tensor.detach().cpu() for tensor in _tensors(result)]
        if test_out and "out" in call_kwargs:
            results += [tensor.detach().cpu() for tensor in _tensors(call_kwargs["out"])]
        if train:
            self.save_gradients(given[:2], results)
            if isinstance(func, torch.nn.Module):
                self.save_gradients(list(func.parameters()), results)
        return results

    def compare_res(self, res1: Results, res2: Results, comparator: Comparator | None = None) -> None:
        """Raises AssertionError, saying which result differs and how, unless all agree in shape and value."""
        if len(res1) != len(res2):
            raise AssertionError(f"{len(res1)} results on one side, {len(res2)} on the other")
        for index, (one, other) in enumerate(zip(res1, res2, strict=True)):
            if index in self._ignored:
                continue
            if one.shape != other.shape:
                raise AssertionError(f"result {index}: shape {tuple(one.shape)} against {tuple(other.shape)}")
            if not (comparator or self._comparators)(one.to(other.dtype), other):
                error = (
                    (one.double() - other.double()).abs().max() if not one.is_complex() else (one - other).abs().max()
                )
                raise AssertionError(f"result {index} differs by up to {error.item()}:\n{one}\nagainst\n{other}")

    def dim_0_tensor_compare(self, res1: torch.Tensor, res2: torch.Tensor) -> None:
        """compare_res for two single tensors without dimensions."""
        if res1.dim() or res2.dim():
            raise AssertionError(f"expected 0-dim tensors, but got shapes {tuple(res1.shape)} and {tuple(res2.shape)}")
        self.compare_res([res1.cpu()], [res2.cpu()])

    def check_result(self, inputs: Any = None, train: bool = False, test_out: bool = False, **kwargs: Any) -> None:
        """musa against the reference on the CPU, same dtype. Raises AssertionError where they differ."""
        ours = self._run(self._func, inputs, "musa", self._dtype, train, test_out, **kwargs)
        theirs = self._run(self._refer_func, inputs, "cpu", self._dtype, train, test_out, **kwargs)
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if index not in self._ignored and one.dtype != other.dtype:
                raise AssertionError(f"result {index}: {one.dtype} on musa, {other.dtype} on the CPU")
        self.compare_res(ours, theirs)

    def _check_low(
        self, low: torch.dtype, device: str, high: torch.dtype, inputs: Any, train: bool, test_out: bool
    ) -> None:
        ours = self._run(self._func, inputs, "musa", low, train, test_out)
        theirs = self._run(self._refer_func, inputs, device, high, train, test_out)
        self.compare_res([one.float() for one in ours], [one.float() for one in theirs], self.test_low_vs_high_dec(low))

    def check_musafp16_vs_musafp16(
        self, inputs: Any = None, train: bool = False, test_out: bool = False, **kwargs: Any
    ) -> None:
        """func in float16 against refer_func in float16, both on musa."""
        self._check_low(torch.float16, "musa", torch.float16, inputs, train, test_out, **kwargs)

    def check_musafp16_vs_musafp32(
        self, inputs: Any = None, train: bool = False, test_out: bool = False, **kwargs: Any
    ) -> None:
        """func in float16 against refer_func in float32, both on musa."""
        self._check_low(torch.float16, "musa", torch.float32, inputs, train, test_out, **kwargs)

    def check_musabf16_vs_musafp16(
        self, inputs: Any = None, train: bool = False, test_out: bool = False, **kwargs: Any
    ) -> None:
        """func in bfloat16 against refer_func in float16, both on musa."""
        self._check_low(torch.bfloat16, "musa", torch.float16, inputs, train, test_out, **kwargs)

    def check_musafp16_vs_cpufp32(
        self, inputs: Any = None, train: bool = False, test_out: bool = False, **kwargs: Any
    ) -> None:
        """func in float16 on musa against refer_func in float32 on the CPU."""
        self._check_low(torch.float16, "cpu", torch.float32, inputs, train, test_out, **kwargs)

    def check_out_ops(self, bf16: bool = False, fp16: bool = False) -> None:
        """The operator with out= writes what it returns without out=, into the tensor given."""
        for dtype in (None, *([torch.bfloat16] if bf16 else []), *([torch.float16] if fp16 else [])):
            self.set_random_seed()
            args = self.wrap_everything(self.deep_copy_dict(self._input_args), "musa", dtype)
            args.pop("out", None)
            with torch.no_grad():
                plain = self._func(**args)
                out = _map(plain, torch.zeros_like)
                addresses = self.get_addr_list_of_args(out)
                self._func(**args, out=out)
            if self.get_addr_list_of_args(out) != addresses:
                raise AssertionError("out= was replaced by another memory")
            self.compare_res([t.cpu() for t in _tensors(out)], [t.cpu() for t in _tensors(plain)])

    def check_grad_fn(self, bf16: bool = False, fp16: bool = False) -> None:
        """The result on musa has the same kind of grad_fn as on the CPU."""
        for dtype in (None, *([torch.bfloat16] if bf16 else []), *([torch.float16] if fp16 else [])):
            names = []
            for device in ("musa", "cpu"):
                args = self.wrap_everything(self.deep_copy_dict(self._input_args), device, dtype)
                names.append([type(t.grad_fn).__name__ for t in _tensors(self._func(**args))])
            if names[0] != names[1]:
                raise AssertionError(f"grad_fn on musa: {names[0]}, on the CPU: {names[1]}")


class InplaceOpChek:
    """A method in place ("add_") of a tensor: it keeps the address and gives the CPU's values."""

    def __init__(
        self,
        func_name: str,
        self_tensor: torch.Tensor,
        input_args: dict[str, Any] | None = None,
        comparators: Sequence[Comparator] | Comparator | None = None,
    ) -> None:
        self._name = func_name
        self._tensor = self_tensor
        self._args = dict(input_args or {})
        if comparators is None:
            comparators = DefaultComparator(equal_nan=True)
        self._comparators = [comparators] if isinstance(comparators, Comparator) else list(comparators)

    def args_to_device(self, args: Any, device: str) -> Any:
        """Copies of nested arguments on `device`."""
        return _map(args, lambda tensor: tensor.detach().to(device, copy=True))

    def args_to_float32(self, args: Any) -> Any:
        """Copies of nested arguments with floating-point tensors in float32."""
        return _map(args, lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)

    def _call(self, device: str, to_float32: bool) -> tuple[torch.Tensor, Any]:
        tensor, args = self.args_to_device((self._tensor, self._args), device)
        if to_float32:
            tensor, args = self.args_to_float32((tensor, args))
        getattr(tensor, self._name)(**args)
        return tensor, args

    def check_address(self) -> None:
        """The tensor has the same memory after the call."""
        tensor, args = self.args_to_device((self._tensor, self._args), "musa")
        before = tensor.data_ptr()
        result = getattr(tensor, self._name)(**args)
        if result is not tensor or tensor.data_ptr() != before:
            raise AssertionError(f"{self._name} gave another tensor than the one it was called on")

    def compare_res(self, m_r: torch.Tensor, c_r: torch.Tensor) -> None:
        """Raises AssertionError unless every comparator takes the two tensors for equal."""
        for comparator in self._comparators:
            if m_r.shape != c_r.shape or not comparator(m_r.cpu().to(c_r.dtype), c_r):
                raise AssertionError(f"{self._name}: {m_r} on musa, {c_r} on the CPU")

    def compare_list(self, list1: Sequence[Any], list2: Sequence[Any]) -> None:
        """compare_res for the tensors of two sequences."""
        for one, other in zip(list1, list2, strict=True):
            if isinstance(one, torch.Tensor):
                self.compare_res(one, other)

    def compare_dict(self, dict1: dict[str, Any], dict2: dict[str, Any]) -> None:
        """compare_res for the tensors of two dicts with the same keys."""
        self.compare_list([dict1[key] for key in dict2], list(dict2.values()))

    def check_res(self, cpu_to_fp32: bool = False) -> None:
        """Values, of the tensor and of its arguments, are the CPU's (computed in float32 with cpu_to_fp32)."""
        ours, our_args = self._call("musa", False)
        theirs, their_args = self._call("cpu", cpu_to_fp32)
        self.compare_res(ours, theirs)
        self.compare_dict(our_args, their_args)


__all__ = ["AbsDiffComparator", "InplaceOpChek", "OpTest"]
