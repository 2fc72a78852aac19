"""Parts of the real package that generate or load machine code of a card: when called they say why there is none."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NO_TRITON = (
    "Triton has no simulated card to compile for; Inductor's C++ backend compiles for the cards instead, see "
    "docs/compile.md"
)
NO_CPP_WRAPPER = (
    "Inductor writes no C++ program around kernels of a card here, as the cards run its code for the CPU; leave "
    "torch._inductor.config.cpp_wrapper off, see docs/compile.md"
)
NO_AOT = (
    "code that AOTInductor compiled ahead of time can't run on a simulated card; use torch.compile, or run the "
    "exported program as it is, see docs/compile.md"
)


def refused(reason: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function with the signature and docstring of the decorated one that raises NotImplementedError."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def refuse(*args: P.args, **kwargs: P.kwargs) -> R:
            signature.bind(*args, **kwargs)  # a wrong call is a TypeError, as everywhere
            raise NotImplementedError(f"{function.__qualname__}: {reason}")

        return refuse

    return decorate
