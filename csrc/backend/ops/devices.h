// The card that all tensors of a native op must be on.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/op_registration/adaption.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace musa {

struct NamedTensor {
  const char* name;
  const at::Tensor& tensor;
};

/// Device of the defined tensors; throws what a CUDA op throws when they lie on different ones. `op` with namespace.
inline c10::Device common_device(const char* op, std::initializer_list<NamedTensor> arguments) {
  std::optional<c10::Device> device;
  for (const auto& [name, tensor] : arguments) {
    if (!tensor.defined()) {
      continue;
    }
    if (!device.has_value()) {
      device = tensor.device();
    } else if (*device != tensor.device()) {
      const std::string method = "wrapper_MUSA_" + std::string(op).substr(std::string_view(op).rfind(':') + 1);
      c10::impl::common_device_check_failure(*device, tensor, method.c_str(), name);
    }
  }
  TORCH_INTERNAL_ASSERT(device.has_value(), op, " was reached without a tensor");
  return *device;
}

/// The tensor inside, or an undefined one that lives as long as the program.
inline const at::Tensor& or_undefined(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor undefined;
  return tensor.has_value() ? *tensor : undefined;
}

}  // namespace musa
