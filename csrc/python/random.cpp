// Random generators: the default one of each card.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/generator.h"
#include "python/bindings.h"

namespace musa::python {

void bind_random(pybind11::module_& module) {
  module.def("_default_generator", torch::wrap_pybind_function(default_generator));
}

}  // namespace musa::python
