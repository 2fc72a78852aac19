// The recording behind `musa-sim run --report`.
#include "backend/trace/run_trace.h"

#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

py::dict take_run_trace() {
  const RunTrace::Recording recording = RunTrace::instance().take();
  py::list names;
  for (const std::string& name : recording.names) {
    names.append(name);
  }
  py::dict result;
  result["names"] = std::move(names);
  result["events"] =
      py::bytes(reinterpret_cast<const char*>(recording.events.data()), recording.events.size() * sizeof(TraceEvent));
  result["dropped"] = recording.dropped;
  return result;
}

}  // namespace

void bind_run_trace(py::module_& module) {
  module.def("_run_trace_start", [] { RunTrace::instance().start(); });
  module.def("_run_trace_stop", [] { RunTrace::instance().stop(); });
  module.def("_run_trace_take", take_run_trace);
}

}  // namespace musa::python
