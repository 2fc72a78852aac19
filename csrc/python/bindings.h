// The parts of the extension module; each file binds one subject.
#pragma once

#include <pybind11/pybind11.h>

namespace musa::python {

void bind_device(pybind11::module_& module);
void bind_streams(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_memory_history(pybind11::module_& module);
void bind_memory_pools(pybind11::module_& module);
void bind_pool_state(pybind11::module_& module);
void bind_allocator_stress(pybind11::module_& module);
void bind_random(pybind11::module_& module);
void bind_counters(pybind11::module_& module);
void bind_graphs(pybind11::module_& module);
void bind_faults(pybind11::module_& module);
void bind_coverage(pybind11::module_& module);
void bind_settings(pybind11::module_& module);
void bind_compiled(pybind11::module_& module);
void bind_observe(pybind11::module_& module);
void bind_run_trace(pybind11::module_& module);
void bind_machine(pybind11::module_& module);
void bind_selection(pybind11::module_& module);

/// Lets the runtime print the Python stack when host code touches device memory.
void install_fault_callback();

}  // namespace musa::python
