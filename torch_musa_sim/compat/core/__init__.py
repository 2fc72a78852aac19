"""The parts of torch.musa by subject, where code written for the real package looks for them."""

import os

from torch_musa_sim.musa.no_meaning import current_blas_handle, current_blaslt_handle

from . import (
    _lazy_init,
    _utils,
    amp,
    ao,
    device,
    lowering,
    memory,
    module_attrs,
    mudnn,
    random,
    serialization,
    storage,
    stream,
    tensor_attrs,
)

__all__ = [
    "_lazy_init",
    "_utils",
    "amp",
    "ao",
    "cmake_prefix_path",
    "current_blas_handle",
    "current_blaslt_handle",
    "device",
    "lowering",
    "memory",
    "module_attrs",
    "mudnn",
    "random",
    "serialization",
    "storage",
    "stream",
    "tensor_attrs",
]

# Where the package's headers and libraries lie, for CMake's find_path and find_library.
cmake_prefix_path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
