// Binds the runtime's calls as the submodule `_musart`.
#pragma once

#include <pybind11/pybind11.h>

namespace musa::python {

void bind_musart(pybind11::module_& module);

}  // namespace musa::python
