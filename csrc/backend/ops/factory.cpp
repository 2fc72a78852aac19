// empty and empty_strided: every musa tensor that isn't a kernel's result begins here.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include "backend/runtime/device.h"
#include "backend/storage.h"

namespace musa {

namespace {

c10::Device checked_device(
    std::optional<c10::Device> device, std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(c10::kStrided) == c10::kStrided, "empty: layout ", *layout,
      " is not supported on musa; only torch.strided and torch.sparse_coo are.");
  const c10::Device wanted = device.value_or(c10::Device(kMusa));
  TORCH_CHECK(wanted.type() == kMusa, "empty: expected a musa device but got ", wanted);
  ensure_initialized();
  return c10::Device(kMusa, resolve_device(wanted.index()));
}

at::Tensor make(size_t nbytes, c10::Device device, c10::ScalarType type) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !c10::isQIntType(type), "Quantized tensors (", type,
      ") are not supported on musa. Use int8 or float8 tensors with explicit scales.");
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::make_intrusive<MusaStorage>(nbytes, device)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
}

// torch.use_deterministic_algorithms: uninitialised memory is made visible, as on every device.
void fill_if_deterministic(at::Tensor& tensor) {
  if (C10_UNLIKELY(
          at::globalContext().deterministicAlgorithms() &&
          at::globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
}

at::Tensor empty_memory_format(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> memory_format) {
  const c10::Device card = checked_device(device, layout, pin_memory);
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(size);
  const size_t nbytes = at::detail::computeStorageNbytesContiguous(size, c10::elementSize(type));
  at::Tensor tensor = make(nbytes, card, type);
  if (size.size() != 1 || size[0] != 0) {  // the shape a new TensorImpl has
    tensor.unsafeGetTensorImpl()->generic_set_sizes_contiguous(size);
  }
  if (C10_UNLIKELY(memory_format.has_value() && *memory_format != c10::MemoryFormat::Contiguous)) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  fill_if_deterministic(tensor);
  return tensor;
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const c10::Device card = checked_device(device, layout, pin_memory);
  const c10::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(size);
  const size_t nbytes = at::detail::computeStorageNbytes(size, stride, c10::elementSize(type));
  at::Tensor tensor = make(nbytes, card, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  fill_if_deterministic(tensor);
  return tensor;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_memory_format);
  m.impl("empty_strided", &empty_strided);
}

}  // namespace musa
