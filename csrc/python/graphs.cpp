// Graphs: the class behind torch.musa.MUSAGraph.
#include "backend/graph/musa_graph.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tuple>

#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

using graph::MusaGraph;
using PoolId = std::tuple<uint64_t, uint64_t>;

PoolId ids_of(c10::MempoolId_t pool) { return {pool.first, pool.second}; }

at::GraphCaptureMode mode_of(const std::string& mode) {
  if (mode == "global") {
    return at::GraphCaptureMode::Global;
  }
  if (mode == "thread_local") {
    return at::GraphCaptureMode::ThreadLocal;
  }
  TORCH_CHECK_VALUE(
      mode == "relaxed", "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", mode);
  return at::GraphCaptureMode::Relaxed;
}

void begin(MusaGraph& self, std::optional<PoolId> pool, const std::string& mode) {
  const PoolId id = pool.value_or(PoolId{0, 0});
  self.capture_begin({std::get<0>(id), std::get<1>(id)}, mode_of(mode));
}

/// One dict a node: what ran, on which card, for how long (ns; -1 when the kernel tells at each replay), after which.
py::list nodes_of(const MusaGraph& self) {
  py::list result;
  for (const graph::Node& node : self.nodes()) {
    py::dict entry;
    entry["index"] = node.number;
    entry["kernel_name"] = node.name;
    entry["device"] = node.card;
    entry["device_ns"] = node.device_ns;
    entry["dependencies"] = node.dependencies;
    result.append(std::move(entry));
  }
  return result;
}

}  // namespace

void bind_graphs(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  py::class_<MusaGraph, std::shared_ptr<MusaGraph>>(module, "_MUSAGraph")
      .def(
          py::init(
              [](bool keep_graph) { return std::make_shared<MusaGraph>(at::GraphImplArgs{.keep_graph = keep_graph}); }),
          py::arg("keep_graph") = false)
      .def("capture_begin", wrap_pybind_function_no_gil(begin))
      .def("capture_end", wrap_pybind_function_no_gil(&MusaGraph::capture_end))
      .def("instantiate", wrap_pybind_function_no_gil(&MusaGraph::instantiate))
      .def("replay", wrap_pybind_function_no_gil(&MusaGraph::replay))
      .def("reset", wrap_pybind_function_no_gil(&MusaGraph::reset))
      .def("pool", wrap_pybind_function([](const MusaGraph& self) { return ids_of(self.pool()); }))
      .def("enable_debug_mode", &MusaGraph::enable_debug_mode)
      .def("debug_dump", wrap_pybind_function_no_gil(&MusaGraph::debug_dump))
      .def("check_inputs", &MusaGraph::check_inputs)
      .def("register_generator_state", wrap_pybind_function(&MusaGraph::register_generator_state))
      .def("raw_graph", wrap_pybind_function(&MusaGraph::raw_graph))
      .def("raw_executable", wrap_pybind_function(&MusaGraph::raw_executable))
      .def("nodes", nodes_of);
  module.def("_is_current_stream_capturing", wrap_pybind_function(graph::is_current_stream_capturing));
}

}  // namespace musa::python
