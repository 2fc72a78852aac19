// The choice among native kernels: what it would be and why, and whether it may depend on the number of rows.
#include "backend/native/selection.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/native/invariance.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

py::dict as_dict(const Explanation& explanation) {
  py::list variants;
  for (const ExplainedVariant& variant : explanation.variants) {
    py::dict entry;
    entry["name"] = variant.name;
    entry["estimate_ns"] = variant.estimate;
    entry["time_ns"] = variant.time;
    entry["excluded"] = variant.excluded;
    variants.append(std::move(entry));
  }
  py::dict result;
  result["key"] = explanation.key;
  result["variants"] = variants;
  result["taken"] = explanation.taken;
  result["source"] = explanation.source;
  return result;
}

}  // namespace

void bind_selection(py::module_& module) {
  module.def("_set_batch_invariant", set_batch_invariant, py::arg("on"));
  module.def("_is_batch_invariant", is_batch_invariant);
  module.def(
      "_explain_product",
      torch::wrap_pybind_function([](const std::string& op, int64_t batch, int64_t m, int64_t n, int64_t k,
                                     const py::object& dtype, bool a_by_columns, bool b_by_columns, bool measure) {
        return as_dict(explain_product(
            {op, batch, m, n, k, py::cast<at::ScalarType>(dtype), a_by_columns, b_by_columns, measure}));
      }),
      py::arg("op"), py::arg("batch"), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("dtype"),
      py::arg("a_by_columns"), py::arg("b_by_columns"), py::arg("measure"));
  module.def(
      "_explain_attention",
      torch::wrap_pybind_function([](int64_t batch, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys,
                                     int64_t head_dim, const py::object& dtype, bool causal, bool measure) {
        return as_dict(explain_attention(
            {batch, heads, kv_heads, queries, keys, head_dim, py::cast<at::ScalarType>(dtype), causal, measure}));
      }),
      py::arg("batch"), py::arg("heads"), py::arg("kv_heads"), py::arg("queries"), py::arg("keys"), py::arg("head_dim"),
      py::arg("dtype"), py::arg("causal"), py::arg("measure"));
}

}  // namespace musa::python
