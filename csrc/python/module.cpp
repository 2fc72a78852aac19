// The extension module torch_musa_sim._C.
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_C, module) { module.doc() = "Bindings of the simulated musa device."; }
