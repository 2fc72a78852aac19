"""Modes that watch every operator of a program: does the CPU agree, where does the first NaN or infinity appear?

model = ...
open_module_tracker(model)
with CompareWithCPU(atol=1e-3, rtol=1e-3):
    train(model)
"""

import contextlib
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import module_tracker
from .module_tracker import (
    ModuleInfo,
    open_module_tracker,
    post_backward_hook,
    post_forward_hook,
    pre_backward_hook,
    pre_forward_hook,
    register_hooks,
    root_module_info,
)
from .tensor_comparison import (
    compare_tensors,
    convert_to_cpu,
    convert_to_dtype,
    convert_to_musa,
    format_tensor,
    has_nan_or_inf,
    print_tensors_diff,
    recursive_apply,
    recursive_compare,
    recursive_print,
)

__all__ = [
    "CompareWithCPU",
    "LogToFile",
    "ModuleInfo",
    "NanInfTracker",
    "TorchFuncMockNoDispatch",
    "compare_for_single_func",
    "compare_for_single_op",
    "compare_tensors",
    "convert_to_cpu",
    "convert_to_dtype",
    "convert_to_musa",
    "format_tensor",
    "get_full_op_name",
    "get_op_name",
    "nan_inf_track_for_single_func",
    "nan_inf_track_for_single_op",
    "open_module_tracker",
    "post_backward_hook",
    "post_forward_hook",
    "pre_backward_hook",
    "pre_forward_hook",
    "print_tensors_diff",
    "recursive_apply",
    "recursive_compare",
    "recursive_print",
    "register_hooks",
    "root_module_info",
    "save_data_for_op",
]

# What has no values to compare: memory that nobody wrote, random numbers, and pure bookkeeping.
_NOT_COMPARED = frozenset(
    f"torch.ops.aten.{name}"
    for name in (
        "bernoulli", "bernoulli_", "detach", "dropout", "empty", "empty_like", "empty_strided", "exponential_",
        "geometric_", "log_normal_", "multinomial", "native_dropout", "new_empty", "new_empty_strided", "normal",
        "normal_", "rand", "rand_like", "randint", "randn", "randn_like", "random_", "randperm", "record_stream",
        "set_", "uniform_",
    )
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "current_module_info":  # it changes with every module that starts or ends
        return module_tracker.current_module_info
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_op_name(op_func: Any) -> str:
    """ "torch.ops.aten.addmm" for an operator, its packet or its overload; module and name for any other function."""
    if isinstance(op_func, torch._ops.OpOverload):
        op_func = op_func.overloadpacket
    if isinstance(op_func, torch._ops.OpOverloadPacket):
        return "torch.ops." + op_func._qualified_op_name.replace("::", ".")
    return f"{op_func.__module__}.{op_func.__name__}"


def get_full_op_name(op_name: str) -> str:
    """The operator's name behind the path of the module that is running, with "(forward)" or "(backward)"."""
    info = module_tracker.current_module_info
    path = info.name_with_prefix()
    return f"{path + '/' if path else ''}{op_name}({'forward' if info.is_forward else 'backward'})"


class LogToFile:
    """Context manager: what is printed inside goes to a file, line by line; without a path it changes nothing."""

    def __init__(self, filepath: str | Path | None = None) -> None:
        self.filepath = filepath
        self._file: TextIO | None = None
        self._redirect: Any = None

    def __enter__(self) -> "LogToFile":
        if self.filepath is not None:
            Path(self.filepath).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.filepath, "a", buffering=1)
            self._redirect = contextlib.redirect_stdout(self._file)
            self._redirect.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._redirect.__exit__(exc_type, exc_val, exc_tb)
            self._file.close()
            self._file = None


class TorchFuncMockNoDispatch:
    """Method of a class that calls `pt_impl` with every dispatch mode switched off."""

    def __init__(self, pt_impl: Callable[..., Any]) -> None:
        self.pt_impl = pt_impl

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.utils._python_dispatch._disable_current_modes():
            return self.pt_impl(obj, *args, **kwargs)


def save_data_for_op(out: Any, args: Any, kwargs: Any, save_dir: str, op_name: str, file_suffix: str = "") -> None:
    """Pickles CPU copies: args and kwargs into {save_dir}/{op_name}_inputs{suffix}.pkl, out into ..._outputs...pkl."""
    folder = Path(save_dir)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = {"args": convert_to_cpu(args), "kwargs": convert_to_cpu(kwargs)}
    for what, data in (("inputs", inputs), ("outputs", convert_to_cpu(out))):
        with open(folder / f"{op_name}_{what}{file_suffix}.pkl", "wb") as file:
            pickle.dump(data, file)


def _load_inputs(path: str) -> tuple[Any, Any]:
    with open(path, "rb") as file:
        data = pickle.load(file)
    return convert_to_musa(data["args"]), convert_to_musa(data["kwargs"])


def compare_for_single_func(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    atol: float,
    rtol: float,
    func_name: str | None = None,
    verbose: bool = True,
) -> tuple[bool, Any]:
    """Runs `func` with the arguments as they are and with CPU copies: (whether the results agree, the first result).

    Arguments that `func` writes to are compared, too. A dtype that the CPU lacks is compared in float32.
    """
    name = func_name or get_op_name(func)
    args_cpu, kwargs_cpu = convert_to_cpu(args), convert_to_cpu(kwargs)
    out = func(*args, **kwargs)
    try:
        out_cpu = func(*args_cpu, **kwargs_cpu)
    except (RuntimeError, NotImplementedError) as error:
        print(error)
        print("Convert to float32 ...")
        args_cpu, kwargs_cpu = (convert_to_dtype(value, torch.float32) for value in (args_cpu, kwargs_cpu))
        out_cpu = func(*args_cpu, **kwargs_cpu)
    mutable = isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable
    ours, theirs = ((out, args, kwargs), (out_cpu, args_cpu, kwargs_cpu)) if mutable else (out, out_cpu)
    correct = recursive_compare(convert_to_cpu(ours), theirs, atol, rtol)
    if verbose or not correct:
        print("....... input .........")
        recursive_print(args)
        if kwargs:
            recursive_print(kwargs)
        print("...... output ........")
        recursive_print(out)
    verdict = "succeeds to pass" if correct else "fails to pass"
    print(f"{'' if correct else '[ERROR] '}{name} {verdict} CompareWithCPU test")
    return correct, out


def compare_for_single_op(
    inputs_data_save_path: str, op_func: Callable[..., Any], atol: float, rtol: float
) -> tuple[bool, Any, Any, Any]:
    """Runs an operator on inputs that `save_data_for_op` wrote: (whether it agrees with the CPU, args, kwargs, result).

    Args and kwargs lie on musa.
    """
    args, kwargs = _load_inputs(inputs_data_save_path)
    correct, out = compare_for_single_func(op_func, args, kwargs, atol, rtol)
    return correct, args, kwargs, out


def nan_inf_track_for_single_func(
    func: Callable[..., Any], args: Any, kwargs: Any, func_name: str | None = None
) -> tuple[bool, Any]:
    """Runs `func`: (whether its results, and what it wrote to, are free of NaN and infinity; the result)."""
    name = func_name or get_op_name(func)
    out = func(*args, **kwargs)
    mutable = isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable
    clean = not has_nan_or_inf((out, args, kwargs) if mutable else out)
    if not clean:
        print(f"[WARNING] {name} gives NaN or infinity")
        print("....... input .........")
        recursive_print(args)
        print("...... output ........")
        recursive_print(out)
    return clean, out


def nan_inf_track_for_single_op(inputs_data_save_path: str, op_func: Callable[..., Any]) -> tuple[bool, Any, Any, Any]:
    """As compare_for_single_op, with the verdict of nan_inf_track_for_single_func."""
    args, kwargs = _load_inputs(inputs_data_save_path)
    clean, out = nan_inf_track_for_single_func(op_func, args, kwargs)
    return clean, args, kwargs, out


class _OperatorWatch(TorchDispatchMode):
    """What the two modes share: which operators, ranks and steps are watched, where messages and data go."""

    def __init__(
        self,
        enabled: bool,
        target_list: Sequence[str] | None,
        white_list: Sequence[str] | None,
        enable_ranks: Sequence[int] | None,
        should_log_to_file: bool,
        output_dir: str,
        dump_error_data: bool,
        start_step: int | None,
        end_step: int | None,
    ) -> None:
        super().__init__()
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if distributed else 0
        self.enabled = enabled and (enable_ranks is None or self.rank in enable_ranks)
        self.target_list = list(target_list or [])
        self.white_list = list(white_list or [])
        self.dump_error_data = dump_error_data
        self.output_dir = output_dir
        self.start_step, self.end_step = start_step, end_step
        self.step_cnt = 0
        self.is_active = False
        log = Path(output_dir) / f"rank_{self.rank}.log" if should_log_to_file else None
        self.logger = LogToFile(log)
        self.update_active_state()

    def update_active_state(self) -> None:
        """Watches while start_step <= step_cnt < end_step; a bound that is None doesn't count."""
        begun = self.start_step is None or self.step_cnt >= self.start_step
        self.is_active = begun and (self.end_step is None or self.step_cnt < self.end_step)

    def step(self) -> None:
        """To be called after each training step."""
        self.step_cnt += 1
        self.update_active_state()
        if self.enabled:
            print(f"-------------------------  step = {self.step_cnt}  ----------------------")

    def __enter__(self) -> Any:
        if self.enabled:
            self.logger.__enter__()
            super().__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if self.enabled:
            super().__exit__(exc_type, exc_val, exc_tb)
            self.logger.__exit__(exc_type, exc_val, exc_tb)

    def _check(self, func: Any, args: Any, kwargs: Any, name: str) -> tuple[bool, Any]:
        raise NotImplementedError

    def _watches(self, name: str) -> bool:
        return name in self.target_list if self.target_list else name not in self.white_list

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = get_op_name(func)
        if not self.is_active or not self._watches(name):
            return func(*args, **kwargs)
        # An operator may overwrite its arguments, so what is to be written is copied before it runs.
        before = (convert_to_cpu(args), convert_to_cpu(kwargs)) if self.dump_error_data else None
        fine, out = self._check(func, args, kwargs, get_full_op_name(name))
        if not fine and before is not None:
            save_data_for_op(out, *before, save_dir=self.output_dir or ".", op_name=name)
            raise RuntimeError(
                f"{get_full_op_name(name)} failed; its inputs and outputs are in "
                f"{Path(self.output_dir or '.') / name}_inputs.pkl and _outputs.pkl"
            )
        return out


class CompareWithCPU(_OperatorWatch):
    """Mode: every operator runs on the CPU, too, and what differs is printed as "[ERROR]".

    atol, rtol: a value passes when |musa - cpu| <= atol + rtol * |cpu|. target_list: only these operators, as
    "torch.ops.aten.addmm"; white_list: not these. dump_error_data: the first difference writes its inputs and outputs
    to output_dir and raises RuntimeError. verbose: describes inputs and outputs that agree, too. enable_ranks: only on
    these ranks. should_log_to_file: messages go to output_dir/rank_<n>.log. start_step, end_step: see `step`. Random
    operators and uninitialised memory aren't compared.
    """

    def __init__(
        self,
        enabled: bool = True,
        atol: float = 0.001,
        rtol: float = 0.001,
        target_list: Sequence[str] | None = None,
        white_list: Sequence[str] | None = None,
        dump_error_data: bool = False,
        verbose: bool = True,
        enable_ranks: Sequence[int] | None = None,
        should_log_to_file: bool = False,
        output_dir: str = "",
        start_step: int | None = None,
        end_step: int | None = None,
    ) -> None:
        super().__init__(
            enabled, target_list, [*_NOT_COMPARED, *(white_list or [])], enable_ranks, should_log_to_file, output_dir,
            dump_error_data, start_step, end_step,
        )  # fmt: skip
        self.atol, self.rtol, self.verbose = atol, rtol, verbose

    def _check(self, func: Any, args: Any, kwargs: Any, name: str) -> tuple[bool, Any]:
        return compare_for_single_func(func, args, kwargs, self.atol, self.rtol, name, self.verbose)


class NanInfTracker(_OperatorWatch):
    """Mode: an operator whose result holds NaN or infinity is printed as "[WARNING]", with its inputs.

    The arguments mean what they mean for CompareWithCPU.
    """

    def __init__(
        self,
        enabled: bool = True,
        target_list: Sequence[str] | None = None,
        white_list: Sequence[str] | None = None,
        enable_ranks: Sequence[int] | None = None,
        should_log_to_file: bool = False,
        output_dir: str = "",
        dump_error_data: bool = False,
        start_step: int | None = None,
        end_step: int | None = None,
    ) -> None:
        uninitialised = [name for name in _NOT_COMPARED if "empty" in name]
        super().__init__(
            enabled, target_list, [*uninitialised, *(white_list or [])], enable_ranks, should_log_to_file, output_dir,
            dump_error_data, start_step, end_step,
        )  # fmt: skip

    def _check(self, func: Any, args: Any, kwargs: Any, name: str) -> tuple[bool, Any]:
        return nan_inf_track_for_single_func(func, args, kwargs, name)
