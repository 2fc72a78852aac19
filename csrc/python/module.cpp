// The extension module torch_musa_sim._C. Loading it loads libtorch_musa_sim.so, which registers the device with torch.
#include "python/bindings.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "Bindings of the simulated musa device.";
  musa::python::bind_device(module);
  musa::python::bind_streams(module);
  musa::python::bind_memory(module);
  musa::python::bind_random(module);
  musa::python::bind_settings(module);
  musa::python::install_fault_callback();
}
