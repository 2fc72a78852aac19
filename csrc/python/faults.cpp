// Faults on demand.
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "musart/musart_faults.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

void plan(int fault, int device, int64_t count, int64_t after_ns, uintptr_t address, size_t bytes) {
  ensure_initialized();
  const musaSimFaultPlan wanted{static_cast<musaSimFault>(fault),       device, count, after_ns,
                                reinterpret_cast<const void*>(address), bytes};
  MUSA_CHECK(musaSimPlanFault(&wanted));
  watch_for_planned_failures();
}

std::vector<std::tuple<int, int, int64_t, int64_t>> planned() {
  std::vector<musaSimFaultPlan> plans(static_cast<size_t>(musaSimPlannedFaults(nullptr, 0)));
  plans.resize(
      static_cast<size_t>(std::min<int>(
          musaSimPlannedFaults(plans.data(), static_cast<int>(plans.size())), static_cast<int>(plans.size()))));
  std::vector<std::tuple<int, int, int64_t, int64_t>> result;
  for (const musaSimFaultPlan& plan : plans) {
    result.emplace_back(plan.fault, plan.device, plan.count, plan.after_ns);
  }
  return result;
}

const char* health(int device) {
  ensure_initialized();
  const musaError_t error = musaSimCardHealth(device);
  return error == musaSuccess ? "ok" : musaGetErrorName(error);
}

void reset(int device) {
  ensure_initialized();
  MUSA_CHECK(musaSimResetCard(device));
}

}  // namespace

void bind_faults(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("_plan_fault", wrap_pybind_function(plan));
  module.def("_planned_faults", planned);
  module.def("_clear_faults", [] {
    musaSimClearFaults();
    watch_for_planned_failures();
  });
  module.def("_card_health", wrap_pybind_function(health));
  module.def("_reset_card", wrap_pybind_function(reset));
}

}  // namespace musa::python
