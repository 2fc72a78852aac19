"""The device's words in Inductor's code: how it names guards, streams and the card's memory.

The C++ is what the real stack compiles; Python code that uses the words runs here.
"""

import re
from typing import Any

from ... import _renamed

# Names of the driver, which don't say "cuda": CUfunction, cuModuleLoad, CU_TENSOR_MAP_...
_DRIVER = re.compile(r"\b(CU|cu)(?=[A-Z_]|result\b|function\b|module\b|deviceptr\b|tensor)")


def _driver_names(text: str) -> str:
    for old, new in (("cuda", "musa"), ("Cuda", "Musa"), ("CUDA", "MUSA")):  # also where they are all of a string
        text = text.replace(old, new)
    return _DRIVER.sub(lambda found: {"CU": "MU", "cu": "mu"}[found.group(1)], text)


def __getattr__(name: str) -> Any:  # for type checkers: the names come from torch's module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_renamed.load(
    globals(),
    "torch._inductor.codegen.cuda.device_op_overrides",
    {
        "from torch._C import _musa_getCurrentRawStream as": (
            "from torch_musa_sim.compile.tree_memory import get_raw_stream as"
        ),
    },
    last=_driver_names,
)


def _cpp_global_scratch(self: Any, idx: int) -> tuple[str, str] | None:
    """Declaration and name of a kernel's scratch memory, which is none: its address is 0."""
    return f"{self.cpp_device_ptr()} global_scratch_{idx} = 0;", f"global_scratch_{idx}"


globals()["MUSADeviceOpOverrides"].cpp_global_scratch = _cpp_global_scratch
