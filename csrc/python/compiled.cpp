// Running what Inductor generates for the CPU on card memory.
#include "backend/bridge/compiled.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "backend/bridge/card_twin.h"
#include "backend/bridge/compiled_operator.h"
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
  static py::list run(const py::object& self, py::list inputs, double flops);

 private:
  class RecordedCall;

  py::list run_plainly(py::list inputs, double flops) {
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

  bool is_written(size_t input) const {
    return !written_.empty() && std::find(written_.begin(), written_.end(), input) != written_.end();
  }

  py::object code_;
  CompiledFacts facts_;
  std::vector<c10::DeviceIndex> results_;
  std::vector<size_t> written_;
};

/// What a recorded run keeps: the region, the arguments that are no musa tensors, and where the others belong.
class Region::RecordedCall final : public CompiledCall {
 public:
  static py::list run_recorded(const py::object& self, py::list inputs, double flops) {
    const Region& region = py::cast<const Region&>(self);
    TORCH_CHECK(
        !region.facts_.synchronizes,
        "operation not permitted when stream is capturing: the host waits for a value "
        "inside ",
        region.facts_.counters->name, "; leave what reads it out of the captured part");
    auto call = c10::make_intrusive<RecordedCall>(self, flops);
    std::vector<at::Tensor> tensors;
    for (const py::handle& input : inputs) {
      const bool on_card = THPVariable_Check(input.ptr()) && THPVariable_Unpack(input.ptr()).device().type() == kMusa;
      call->fixed_.push_back(on_card ? py::object() : py::reinterpret_borrow<py::object>(input));
      if (on_card) {
        tensors.push_back(THPVariable_Unpack(input.ptr()));
      }
    }
    PyList_SetSlice(inputs.ptr(), 0, static_cast<Py_ssize_t>(inputs.size()), nullptr);
    const std::vector<at::Tensor> made = run_as_operator(tensors, call);
    py::list results;
    size_t next = 0;
    for (const py::object& other : call->others_) {
      results.append(other ? other : py::reinterpret_steal<py::object>(THPVariable_Wrap(made.at(next++))));
    }
    return results;
  }

  RecordedCall(py::object region, double flops) : region_(std::move(region)), flops_(flops) {}
  ~RecordedCall() override {
    const py::gil_scoped_acquire gil;
    region_ = py::object();
    fixed_.clear();
    others_.clear();
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) override {
    const py::gil_scoped_acquire gil;
    py::list inputs;
    size_t next = 0;
    for (const py::object& fixed : fixed_) {
      inputs.append(fixed ? fixed : py::reinterpret_steal<py::object>(THPVariable_Wrap(arguments.at(next++))));
    }
    const py::list results = py::cast<Region&>(region_).run_plainly(std::move(inputs), flops_);
    std::vector<at::Tensor> tensors;
    others_.clear();
    for (const py::handle& result : results) {
      const bool is_tensor = THPVariable_Check(result.ptr());
      others_.push_back(is_tensor ? py::object() : py::reinterpret_borrow<py::object>(result));
      if (is_tensor) {
        tensors.push_back(THPVariable_Unpack(result.ptr()));
      }
    }
    return tensors;
  }

 private:
  py::object region_;
  double flops_;
  std::vector<py::object> fixed_;   // arguments; null where a musa tensor belongs
  std::vector<py::object> others_;  // results; null where a tensor belongs
};

py::list Region::run(const py::object& self, py::list inputs, double flops) {
  if (C10_UNLIKELY(operators_are_recorded())) {
    return RecordedCall::run_recorded(self, std::move(inputs), flops);
  }
  return py::cast<Region&>(self).run_plainly(std::move(inputs), flops);
}

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
