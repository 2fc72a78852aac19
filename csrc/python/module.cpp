// The extension module torch_musa_sim._C. Loading it loads libtorch_musa_sim.so, whose kernels, guard and hooks
// register themselves; _register does the rest.
#include <torch/csrc/Exceptions.h>

#include "backend/register.h"
#include "backend/runtime/exit.h"
#include "python/bindings.h"
#include "python/musart.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "Bindings of the simulated musa device.";
  module.def("_register", torch::wrap_pybind_function(musa::register_backend));
  module.def("_settle_autograd_threads", torch::wrap_pybind_function_no_gil(musa::settle_autograd_threads));
  musa::python::bind_device(module);
  musa::python::bind_musart(module);
  musa::python::bind_streams(module);
  musa::python::bind_memory(module);
  musa::python::bind_memory_history(module);
  musa::python::bind_memory_pools(module);
  musa::python::bind_pool_state(module);
  musa::python::bind_allocator_stress(module);
  musa::python::bind_random(module);
  musa::python::bind_counters(module);
  musa::python::bind_graphs(module);
  musa::python::bind_faults(module);
  musa::python::bind_coverage(module);
  musa::python::bind_settings(module);
  musa::python::bind_compiled(module);
  musa::python::bind_observe(module);
  musa::python::bind_run_trace(module);
  musa::python::bind_machine(module);
  musa::python::bind_selection(module);
  musa::python::install_fault_callback();
}
