#include "backend/bridge/plan.h"

#include <ATen/core/jit_type.h>

#include "backend/bridge/strict.h"

namespace musa {

namespace {

std::optional<ArgKind> kind_of(const c10::Type& type) {
  using c10::TypeKind;
  const auto inner = [](const c10::Type& t) { return t.containedType(0)->kind(); };
  switch (type.kind()) {
    case TypeKind::TensorType:
      return ArgKind::kTensor;
    case TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case TypeKind::OptionalType:
      switch (inner(type)) {
        case TypeKind::TensorType:
          return ArgKind::kOptionalTensor;
        case TypeKind::DeviceObjType:
          return ArgKind::kDevice;
        case TypeKind::GeneratorType:
          return ArgKind::kGenerator;
        case TypeKind::ListType:
          return kind_of(*type.containedType(0));
        default:
          return std::nullopt;
      }
    case TypeKind::ListType:
      if (inner(type) == TypeKind::TensorType) {
        return ArgKind::kTensorList;
      }
      if (inner(type) == TypeKind::OptionalType &&
          type.containedType(0)->containedType(0)->kind() == TypeKind::TensorType) {
        return ArgKind::kOptionalTensorList;
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

bool only_views(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) {
    return false;
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() == nullptr || result.alias_info()->isWrite()) {
      return false;
    }
  }
  return true;
}

/// In place by name, but what was there before is not read.
bool overwrites(std::string_view method) {
  return method == "fill_" || method == "zero_" || method == "_foreach_zero_";
}

}  // namespace

Plan::Plan(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const c10::OperatorName& op_name = op.operator_name();
  name = c10::toString(op_name);
  method = op_name.name.substr(op_name.name.rfind(':') + 1);
  arg_count = schema.arguments().size();
  return_count = schema.returns().size();
  writes = false;
  for (size_t i = 0; i < arg_count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    arg_names.push_back(argument.name());
    if (const auto kind = kind_of(*argument.type())) {
      const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      writes |= written;
      args.push_back({static_cast<uint16_t>(i), *kind, written, written && !argument.is_out() && !overwrites(method)});
    }
  }
  facts = op_facts(method, op_name.overload_name);
  if (only_views(schema)) {
    facts.flags |= kNoLaunch;
  }
  upcasts = has_upcast(method);
  accepted_dtypes = musa::accepted_dtypes(method);
  counters = &counters_of(name, /*bridged=*/true);
  native = native_kernel(name);
}

}  // namespace musa
