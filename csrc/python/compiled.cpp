// Running what Inductor generates for the CPU on card memory.
#include "backend/bridge/compiled.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "backend/bridge/card_twin.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/host_view.h"
#include "backend/bridge/op_table.h"
#include "backend/runtime/device.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

/// One compiled graph: the generated function and where its results belong.
class Region {
 public:
  /// results: for each result the card's index, or -1 for the cpu (and for what is no tensor). written: positions of
  /// the inputs that the function changes.
  Region(
      py::object code, const std::string& name, c10::DeviceIndex device, std::vector<c10::DeviceIndex> results,
      std::vector<size_t> written, at::ScalarType compute, bool synchronizes)
      : code_(std::move(code)),
        facts_{
            c10::Device(kMusa, resolve_device(device)), &counters_of(name, /*bridged=*/true), cost_dtype(compute),
            synchronizes},
        results_(std::move(results)),
        written_(std::move(written)) {}

  /// Runs the function on `inputs`, a list that it empties as torch's boxed calls do. Holds the GIL: the generated code
  /// is Python around its kernels.
  py::list run(py::list inputs, double flops) {
    CompiledRun run(facts_);
    const size_t count = inputs.size();
    py::list shown(count);
    for (size_t i = 0; i < count; ++i) {
      PyObject* input = PyList_GET_ITEM(inputs.ptr(), i);
      shown[i] = THPVariable_Check(input)
          ? py::reinterpret_steal<py::object>(THPVariable_Wrap(run.show(THPVariable_Unpack(input), is_written(i))))
          : py::reinterpret_borrow<py::object>(input);
    }
    PyList_SetSlice(inputs.ptr(), 0, static_cast<Py_ssize_t>(count), nullptr);
    py::object returned = code_(std::move(shown));
    run.finish();
    const py::sequence values = py::reinterpret_borrow<py::sequence>(returned);
    const size_t returned_count = values.size();
    TORCH_CHECK(
        returned_count == results_.size(), "compiled code returned ", returned_count, " values instead of ",
        results_.size());
    py::list taken(returned_count);
    for (size_t i = 0; i < returned_count; ++i) {
      py::object value = values[i];
      if (THPVariable_Check(value.ptr())) {
        const c10::Device device = results_[i] < 0 ? c10::Device(c10::kCPU) : c10::Device(kMusa, results_[i]);
        value = py::reinterpret_steal<py::object>(THPVariable_Wrap(run.take(THPVariable_Unpack(value.ptr()), device)));
      }
      taken[i] = std::move(value);
    }
    run.launch(flops);
    return taken;
  }

 private:
  bool is_written(size_t input) const {
    return !written_.empty() && std::find(written_.begin(), written_.end(), input) != written_.end();
  }

  py::object code_;
  CompiledFacts facts_;
  std::vector<c10::DeviceIndex> results_;
  std::vector<size_t> written_;
};

bool synchronizes(const std::string& name, const std::string& overload) {
  return (op_facts(name, overload).flags & kSynchronizes) != 0;
}

}  // namespace

void bind_compiled(py::module_& module) {
  using torch::wrap_pybind_function;
  py::class_<Region>(module, "_CompiledRegion")
      .def(
          py::init<
              py::object, const std::string&, c10::DeviceIndex, std::vector<c10::DeviceIndex>, std::vector<size_t>,
              at::ScalarType, bool>())
      .def("run", wrap_pybind_function(&Region::run));
  module.def("_card_twin", wrap_pybind_function(card_twin));
  module.def("_host_view", wrap_pybind_function(host_view));
  module.def("_op_synchronizes", wrap_pybind_function(synchronizes));
  module.def("_op_is_upcast", wrap_pybind_function([](const std::string& name) { return has_upcast(name); }));
}

}  // namespace musa::python
