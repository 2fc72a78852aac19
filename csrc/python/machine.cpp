// The host's instruction set and its limits.
#include "backend/native/machine.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/native/kernels.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {

void bind_machine(py::module_& module) {
  module.def("_instruction_set", instruction_set);
  module.def("_best_instruction_set", best_instruction_set);
  module.def("_native_enabled", native_enabled, py::arg("name"));
  module.def("_read_memory", torch::wrap_pybind_function_no_gil(read_memory), py::arg("memory"));
  module.def(
      "_run_peak", torch::wrap_pybind_function([](const py::object& type, int64_t rounds) {
        return run_peak(py::cast<at::ScalarType>(type), rounds);
      }),
      py::arg("dtype"), py::arg("rounds"));
}

}  // namespace musa::python
