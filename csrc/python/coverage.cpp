// What a program called, and which operators it may call.
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "backend/coverage/call_tree.h"
#include "backend/coverage/peer.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

py::tuple as_tuple(const CallNode& node) {
  py::list children;
  for (const auto& child : node.children) {
    children.append(as_tuple(*child));
  }
  return py::make_tuple(node.name, node.place, node.kernel, node.calls, node.bytes, children);
}

using Limit = std::tuple<std::string, std::string, std::string, std::string>;

void limit(const std::vector<Limit>& rows, const std::string& peer) {
  std::vector<PeerLimit> limits;
  for (const auto& [op, argument, rule, value] : rows) {
    limits.push_back({op, argument, rule, value});
  }
  limit_operators(limits, peer);
}

}  // namespace

void bind_coverage(py::module_& module) {
  module.def("_start_call_tree", start_call_tree);
  module.def("_stop_call_tree", stop_call_tree);
  module.def("_call_tree", [] { return as_tuple(*call_tree()); });
  module.def("_refuse_operators", torch::wrap_pybind_function(refuse_operators));
  module.def("_replay_composites", torch::wrap_pybind_function(replay_composites));
  module.def("_limit_operators", torch::wrap_pybind_function(limit));
}

}  // namespace musa::python
