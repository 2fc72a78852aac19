"""Every call that torch_musa 2.7.1 or torch.cuda takes binds on torch.musa."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from name_table import Name, all_names, has_signature, is_there, parameters, resolve

# Modules of torch.cuda whose functions torch.musa has, "" for torch.cuda itself.
CUDA_MODULES = ("", "amp", "comm", "graphs", "memory", "nvtx", "profiler", "random", "streams")
CUDA_CLASSES = {"": ("Event", "Stream", "StreamContext", "device", "device_of", "_DeviceGuard"), "amp": ("GradScaler",)}


def signature_of(text: str) -> inspect.Signature:
    """The signature that `text` writes out; a default that isn't a literal becomes a placeholder."""
    tree = ast.parse(f"def f({parameters(text)}): ...").body[0]
    assert isinstance(tree, ast.FunctionDef)
    a = tree.args
    positional = a.posonlyargs + a.args
    defaults = [inspect.Parameter.empty] * (len(positional) - len(a.defaults)) + [...] * len(a.defaults)
    made = [
        inspect.Parameter(
            x.arg,
            inspect.Parameter.POSITIONAL_ONLY if x in a.posonlyargs else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=d,
        )
        for x, d in zip(positional, defaults, strict=True)
    ]
    if a.vararg:
        made.append(inspect.Parameter(a.vararg.arg, inspect.Parameter.VAR_POSITIONAL))
    for x, d in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        made.append(
            inspect.Parameter(
                x.arg, inspect.Parameter.KEYWORD_ONLY, default=inspect.Parameter.empty if d is None else ...
            )
        )
    if a.kwarg:
        made.append(inspect.Parameter(a.kwarg.arg, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(made)


def calls(signature: inspect.Signature) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments that bind to `signature`: only what is required, everything by position, everything by keyword."""
    kinds = inspect.Parameter
    listed = [p for p in signature.parameters.values() if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)]
    required = [p for p in listed if p.default is kinds.empty]
    for chosen in (required, listed):
        by_position = tuple(object() for p in chosen if p.kind is not kinds.KEYWORD_ONLY)
        yield by_position, {p.name: object() for p in chosen if p.kind is kinds.KEYWORD_ONLY}
        yield (
            tuple(object() for p in chosen if p.kind is kinds.POSITIONAL_ONLY),
            {p.name: object() for p in chosen if p.kind is not kinds.POSITIONAL_ONLY},
        )


def own_signature(target: Any) -> inspect.Signature | None:
    """None for what tells no signature (a builtin): there the docstring is all there is."""
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def refused(target: Any, other: inspect.Signature) -> list[str]:
    ours = own_signature(target)
    if ours is None:
        return []
    wrong = []
    for arguments, keywords in calls(other):
        try:
            ours.bind(*arguments, **keywords)
        except TypeError as error:
            wrong.append(f"{other}: {len(arguments)} by position and {sorted(keywords)}: {error}; ours is {ours}")
    return wrong


def peer_cases() -> list[Name]:
    cases = []
    for name in all_names():
        # What torch.musa has under the same name takes the same calls as the submodule's.
        if has_signature(name) and name.scope != "collectives" and is_there(name):
            cases.append(name)
    return cases


def unbound(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


@pytest.mark.parametrize("module", sorted({name.module for name in peer_cases()}))
def test_calls_of_torch_musa_bind(module):
    wrong = []
    for name in peer_cases():
        if name.module != module:
            continue
        target = resolve(name.module, name.name)
        text = name.signature
        if name.module == "torch" and name.kind == "method":  # the table leaves out what Python binds
            text = "(self, " + parameters(text) + ")"
        signature = signature_of(text)
        if name.kind == "classmethod" and next(iter(signature.parameters), "") == "cls":
            signature = unbound(signature)
        wrong += [f"{name}{why}" for why in refused(target, signature)]
    assert not wrong, "\n".join(wrong)


def cuda_functions() -> Iterator[tuple[str, Any, Any]]:
    for module in CUDA_MODULES:
        theirs: Any = importlib.import_module(f"torch.cuda.{module}" if module else "torch.cuda")
        ours = getattr(torch.musa, module) if module and hasattr(torch.musa, module) else torch.musa
        for name in dir(theirs):
            target = getattr(ours, name, None)
            original = getattr(theirs, name)
            if name.startswith("__") or target is None or not inspect.isroutine(original):
                continue
            yield f"{module or 'torch.cuda'}.{name}", original, target
        for cls in CUDA_CLASSES.get(module, ()):
            original, target = getattr(theirs, cls), getattr(ours, cls)
            yield f"{cls}()", original, target
            for member in dir(original):
                if not member.startswith("__") and inspect.isfunction(inspect.getattr_static(original, member)):
                    yield f"{cls}.{member}", getattr(original, member), getattr(target, member)


@pytest.mark.parametrize(("name", "original", "target"), [pytest.param(*c, id=c[0]) for c in cuda_functions()])
def test_calls_of_torch_cuda_bind(name, original, target):
    theirs = own_signature(original)
    if theirs is None:
        pytest.skip("torch doesn't tell this signature")
    wrong = refused(target, theirs)
    assert not wrong, "\n".join(wrong)
