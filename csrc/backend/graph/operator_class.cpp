#include "backend/graph/operator_class.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace musa::graph {

namespace {

using std::string_view;

// Metadata, memory and decisions of the host, which their schemas don't tell.
constexpr auto kOnHost = std::to_array<string_view>({
    "_fused_sdp_choice",
    "_has_compatible_shallow_copy_type",
    "empty",
    "empty_strided",
    "is_set_to",
    "record_stream",
    "resize_",
    "resize_as_",
    "set_",
});

// The bridge with another entrance (ops/direct.cpp): the same CPU kernel.
constexpr auto kDirect = std::to_array<string_view>({
    "aten::add.Tensor",
    "aten::cat",
    "aten::mm",
    "aten::mul.Tensor",
    "aten::native_layer_norm",
});

bool contains(const auto& names, string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Plan make_plan(const c10::OperatorHandle& op, bool bridged) {
  (void)counters_of(c10::toString(op.operator_name()), bridged);  // or the plan would call a native kernel bridged
  return Plan(op);
}

bool is_bridged(const c10::OperatorHandle& op) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    return false;
  }
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
    return true;  // by the fallback
  }
  return contains(kDirect, c10::toString(op.operator_name())) ||
      op.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1).debug().find("torch_musa_sim bridge") !=
      std::string::npos;
}

bool answers_with_numbers(const c10::FunctionSchema& schema) {
  return !schema.returns().empty() &&
      std::none_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
        const std::string type = result.type()->str();
        return type.find("Tensor") != std::string::npos;
      });
}

Treatment treatment_of(const c10::OperatorHandle& op, const Plan& plan) {
  if (plan.method == "_copy_from" || plan.method == "_copy_from_and_resize") {
    return Treatment::kCopy;
  }
  if (plan.has(kNoLaunch) || contains(kOnHost, plan.method) || op.operator_name().name.starts_with("c10d::")) {
    return Treatment::kExecute;
  }
  if (plan.has(kSynchronizes)) {
    return Treatment::kRefuse;
  }
  return answers_with_numbers(op.schema()) && !plan.writes ? Treatment::kExecute : Treatment::kRecord;
}

}  // namespace

OperatorClass::OperatorClass(const c10::OperatorHandle& op)
    : plan(make_plan(op, is_bridged(op))),
      treatment(treatment_of(op, plan)),
      bridged(is_bridged(op) && !plan.upcasts),
      has_cpu_kernel(op.hasKernelForDispatchKey(c10::DispatchKey::CPU)),
      has_meta_kernel(op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) {}

bool has_device_kernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
      (op.hasKernelForDispatchKey(c10::DispatchKey::CPU));
}

const OperatorClass& operator_class(const c10::OperatorHandle& op) {
  static auto* mutex = new std::mutex();
  static auto* classes = new std::unordered_map<c10::OperatorName, std::unique_ptr<const OperatorClass>>();
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<const OperatorClass>& found = (*classes)[op.operator_name()];
  if (found == nullptr) {
    found = std::make_unique<const OperatorClass>(op);
  }
  return *found;
}

}  // namespace musa::graph
