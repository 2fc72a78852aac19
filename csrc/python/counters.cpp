// What each operator did since the last reset.
#include "backend/bridge/counters.h"

#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

py::list statistics() {
  py::list result;
  for (const OpStatistics& op : op_statistics()) {
    py::dict entry;
    entry["name"] = op.name;
    entry["bridged"] = op.bridged;
    entry["calls"] = op.calls;
    entry["native_calls"] = op.native_calls;
    entry["bytes"] = op.bytes;
    entry["device_ns"] = op.device_ns;
    entry["copies"] = op.copies;
    result.append(std::move(entry));
  }
  return result;
}

}  // namespace

void bind_counters(py::module_& module) {
  module.def("_op_statistics", statistics);
  module.def("_reset_op_statistics", reset_op_statistics);
}

}  // namespace musa::python
