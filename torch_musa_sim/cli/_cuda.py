"""`musa-sim run --cuda`: a program that names cuda runs on musa, and learns what was mapped and what couldn't be.

Nothing here is active without the option. Four kinds of names are mapped:

* device names: "cuda", "cuda:1" where torch functions, torch.device, torch.Generator, torch.load, autocast, GradScaler
  and Module.to take them;
* methods: Tensor.cuda, Module.cuda, Tensor.is_cuda and their like;
* everything of torch.cuda that torch.musa has, and of torch.backends.cuda, for callers outside torch itself: torch's
  own code goes on seeing that there is no CUDA, as its paths for CUDA lead to libraries that aren't here;
* "nccl", where a process group is made and torch has a backend "mccl".

What a program reads off a device can't be mapped: `tensor.device.type` is "musa".
"""

import functools
import importlib
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Names of torch.cuda whose counterpart has another one.
_RENAMED = {"CUDAGraph": "MUSAGraph", "CUDAPluggableAllocator": "MUSAPluggableAllocator", "cudart": "musart"}
# Looked up by torch's import machinery and by tools that walk modules, not by the program.
_NOT_MAPPED = ("__", "_lazy_init", "_lazy_call")

_device = torch.device


class Mapping:
    """What was mapped and what was asked for in vain, with counts."""

    def __init__(self) -> None:
        self.mapped: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()

    def summary(self) -> str:
        """A few lines for the end of the run."""
        lines = ["musa-sim --cuda: mapped to musa:"]
        lines += [f"  {count:>7}x  {name}" for name, count in sorted(self.mapped.items())] or ["  nothing"]
        if self.missing:
            lines.append("musa-sim --cuda: not mapped, as it has no counterpart:")
            lines += [f"  {count:>7}x  {name}" for name, count in sorted(self.missing.items())]
        return "\n".join(lines)


def is_cuda_name(value: object) -> bool:
    """True for "cuda" and "cuda:1"."""
    return isinstance(value, str) and (value == "cuda" or (value.startswith("cuda:") and value[5:].isdigit()))


def is_cuda_tensor_type(value: object) -> bool:
    """True for "torch.cuda.FloatTensor" and its like, which `Tensor.type` takes."""
    return isinstance(value, str) and value.startswith("torch.cuda.") and value.endswith("Tensor")


class _Names:
    """Replaces device names in arguments, and counts."""

    def __init__(self, mapping: Mapping) -> None:
        self.mapping = mapping

    def value(self, value: Any, where: str) -> Any:
        if is_cuda_name(value):
            self.mapping.mapped[f'"cuda" in {where}'] += 1
            return "musa" + value[4:]
        if is_cuda_tensor_type(value):
            self.mapping.mapped[f'"torch.cuda...Tensor" in {where}'] += 1
            return value.replace("cuda", "musa", 1)
        if type(value) is _ClassProxy:  # tensor.type(torch.cuda.FloatTensor)
            return value._wrapped
        if isinstance(value, _device) and value.type == "cuda":
            self.mapping.mapped[f'"cuda" in {where}'] += 1
            return _device("musa") if value.index is None else _device("musa", value.index)
        return value

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], where: str
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Device names at the top level of a call; texts inside lists and dictionaries are the program's data."""
        return (
            tuple(self.value(one, where) for one in args),
            {name: self.value(one, where) for name, one in kwargs.items()},
        )

    def wrap(self, function: Callable[..., Any], where: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = self.arguments(args, kwargs, where)
            return function(*args, **kwargs)

        return mapped


class _FunctionMode(TorchFunctionMode):
    """Device names in the arguments of torch's own functions and of tensor methods."""

    def __init__(self, names: _Names) -> None:
        super().__init__()
        self._names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        where = getattr(func, "__name__", str(func))
        args, kwargs = self._names.arguments(args, kwargs or {}, where)
        return func(*args, **kwargs)


class _ClassProxy:
    """A class of torch.musa for which device names in the call are replaced; isinstance and subclassing go to it."""

    def __init__(self, wrapped: type, names: _Names, where: str) -> None:
        self.__dict__.update(_wrapped=wrapped, _names=names, _where=where, __doc__=wrapped.__doc__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._names.arguments(args, kwargs, self._where)
        return self._wrapped(*args, **kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._wrapped)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._wrapped)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (self._wrapped,)

    def __or__(self, other: Any) -> Any:
        return self._wrapped | other

    def __ror__(self, other: Any) -> Any:
        return other | self._wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


def _device_class(names: _Names, wrapped: type, where: str) -> type:
    """Stands for a final class of torch (torch.device, torch.Generator), where code expects a real class."""

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = names.arguments(args, kwargs, where)
            return wrapped(*args, **kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, wrapped)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, wrapped)

        def __getattr__(cls, name: str) -> Any:
            return getattr(wrapped, name)

    return Meta(wrapped.__name__, (), {"__module__": "torch", "__doc__": wrapped.__doc__, "__hash__": wrapped.__hash__})


def _is_torch(frame: types.FrameType) -> bool:
    """Whether torch's own code (or ours) is asking."""
    caller = str(frame.f_globals.get("__name__", ""))
    return caller == "torch" or caller.startswith(("torch.", "importlib", "torch_musa_sim."))


def _cuda_module(path: str, target: types.ModuleType, names: _Names) -> type[types.ModuleType]:
    """The class that makes a module of torch.cuda answer with torch.musa's names, for callers outside torch."""
    mapping = names.mapping
    made: dict[str, Any] = {}

    def lookup(name: str, original: Any) -> Any:
        if name not in made:
            found = getattr(target, _RENAMED.get(name, name))
            if isinstance(found, type):
                found = _ClassProxy(found, names, f"{path}.{name}")
            elif isinstance(found, types.ModuleType):
                found = original if isinstance(original, types.ModuleType) else found
            elif callable(found):
                found = names.wrap(found, f"{path}.{name}")
            made[name] = found
        return made[name]

    class CudaModule(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            get = super().__getattribute__
            if name.startswith(_NOT_MAPPED):
                return get(name)
            if _is_torch(sys._getframe(1)):
                return get(name)
            missing = AttributeError(f"module {path!r} has no attribute {name!r}")
            original = self.__dict__.get(name, missing)
            if not hasattr(target, _RENAMED.get(name, name)):
                mapping.missing[f"{path}.{name}"] += 1
                return get(name)
            mapping.mapped[f"{path}.{name}"] += 1
            return lookup(name, original)

    return CudaModule


def activate() -> Mapping:
    """Maps from now on, in this process, until it ends. The musa device must be registered."""
    mapping = Mapping()
    names = _Names(mapping)
    _map_modules(names)
    _map_methods(names)
    _map_functions(names)
    _map_process_groups(names)
    torch.device = _device_class(names, _device, "torch.device")  # type: ignore[assignment, misc]
    torch.Generator = _device_class(names, torch.Generator, "torch.Generator")  # type: ignore[assignment, misc]
    _FunctionMode(names).__enter__()  # of this thread, to its end
    _map_threads(names)
    return mapping


def _map_modules(names: _Names) -> None:
    from torch_musa_sim import musa

    torch.cuda.__class__ = _cuda_module("torch.cuda", musa, names)
    backends = importlib.import_module("torch.backends.cuda")
    backends.__class__ = _cuda_module("torch.backends.cuda", importlib.import_module("torch.backends.musa"), names)
    for part in ("amp", "graphs", "memory", "nvtx", "random", "streams"):
        path = f"torch.cuda.{part}"
        module, target = importlib.import_module(path), getattr(musa, part, None)
        if isinstance(target, types.ModuleType):
            module.__class__ = _cuda_module(path, target, names)
    for name in musa.types.LEGACY_TYPES:
        if not hasattr(torch.cuda, name):
            setattr(torch.cuda, name, musa.types.LEGACY_TYPES[name])


def _map_methods(names: _Names) -> None:
    def moved(kind: str) -> Callable[..., Any]:
        def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
            names.mapping.mapped[f"{kind}.cuda"] += 1
            args, kwargs = names.arguments(args, kwargs, f"{kind}.cuda")
            return self.musa(*args, **kwargs)

        return cuda

    for owner, kind in (
        (torch.Tensor, "Tensor"),
        (torch.nn.Module, "Module"),
        (torch.nn.utils.rnn.PackedSequence, "PackedSequence"),
        (torch.UntypedStorage, "UntypedStorage"),
    ):
        owner.cuda = moved(kind)  # type: ignore[assignment, attr-defined]

    def is_cuda(self: torch.Tensor) -> bool:
        if _is_torch(sys._getframe(1)):
            return False
        names.mapping.mapped["Tensor.is_cuda"] += 1
        return self.device.type == "musa"

    torch.Tensor.is_cuda = property(is_cuda)  # type: ignore[assignment, misc]
    torch.nn.Module.to = names.wrap(torch.nn.Module.to, "Module.to")  # type: ignore[method-assign]
    torch.nn.Module.to_empty = names.wrap(torch.nn.Module.to_empty, "Module.to_empty")  # type: ignore[method-assign]
    from torch_musa_sim import musa

    for handle_owner, attribute in ((musa.Stream, "stream"), (musa.Event, "event")):
        setattr(handle_owner, f"cuda_{attribute}", property(_attribute(f"musa_{attribute}")))


def _attribute(name: str) -> Callable[[Any], Any]:
    return lambda self: getattr(self, name)


def _map_functions(names: _Names) -> None:
    """What takes a device name and is no function that a TorchFunctionMode sees."""
    for owner, function in (
        (torch, "set_default_device"),
        (torch, "is_autocast_enabled"),
        (torch, "set_autocast_enabled"),
        (torch, "get_autocast_dtype"),
        (torch, "set_autocast_dtype"),
        (torch.amp, "is_autocast_available"),
        (torch.amp, "custom_fwd"),
        (torch.amp, "custom_bwd"),
        (torch.random, "fork_rng"),
        (torch, "get_device_module"),
        (torch.accelerator, "set_device_index"),
    ):
        path = f"{getattr(owner, '__name__', 'torch')}.{function}"
        setattr(owner, function, names.wrap(getattr(owner, function), path))
    classes: list[Any] = [torch.amp.autocast_mode.autocast, torch.amp.GradScaler]
    for one in classes:
        one.__init__ = names.wrap(one.__init__, f"torch.amp.{one.__name__}")
    torch.load = _loader(torch.load, names)


def _loader(load: Callable[..., Any], names: _Names) -> Callable[..., Any]:
    @functools.wraps(load)
    def mapped(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            places = {
                names.value(key, "torch.load"): names.value(value, "torch.load") for key, value in map_location.items()
            }
            map_location = {**map_location, **places}
        elif map_location is None:
            map_location = _Locations(names)
        else:
            map_location = names.value(map_location, "torch.load")
        return load(f, map_location, *args, **kwargs)

    return mapped


class _Locations:
    """A map_location for files: what was saved from CUDA goes to the musa card of the same number."""

    def __init__(self, names: _Names) -> None:
        self._names = names

    def __call__(self, storage: Any, location: str) -> Any:
        if not is_cuda_name(location):
            return None  # as torch.load would without a map_location
        return storage.to(device=_device(self._names.value(location, "a file")))


def _map_process_groups(names: _Names) -> None:
    if not torch.distributed.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    def wrap(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def mapped(*args: Any, **kwargs: Any) -> Any:
            args = tuple(backend(one, name) for one in args)
            return function(*args, **{key: backend(one, name) for key, one in kwargs.items()})

        return mapped

    def backend(value: Any, name: str) -> Any:
        if not isinstance(value, str) or "nccl" not in value.split(":"):
            return names.value(value, f"torch.distributed.{name}") if isinstance(value, _device) else value
        if not hasattr(c10d.Backend, "MCCL"):
            names.mapping.missing[f'"nccl" in torch.distributed.{name}'] += 1
            return value
        names.mapping.mapped[f'"nccl" in torch.distributed.{name}'] += 1
        return value.replace("nccl", "mccl").replace("cuda:", "musa:")

    for name in ("init_process_group", "new_group"):
        function = wrap(getattr(c10d, name), name)
        setattr(c10d, name, function)
        setattr(torch.distributed, name, function)


def _map_threads(names: _Names) -> None:
    """A TorchFunctionMode belongs to one thread; threads that the program starts get one of their own."""
    original = threading.Thread.run

    def run(self: threading.Thread) -> None:
        with _FunctionMode(names):
            original(self)

    threading.Thread.run = run  # type: ignore[method-assign]
