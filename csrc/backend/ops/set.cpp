// Tensor.set_ in its four forms, and record_stream.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/stream.h"
#include "backend/storage.h"

namespace musa {

namespace {

at::Tensor& set_storage_view(
    at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  const size_t needed =
      at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize(), static_cast<size_t>(offset));
  if (impl->numel() > 0 && needed > self.storage().nbytes()) {
    resize_storage(self.storage(), needed);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_view(self, std::move(source), 0, count, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() != source.unsafeGetTensorImpl()) {
    set_storage_view(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

at::Tensor& set_nothing(at::Tensor& self) {
  at::Storage empty(c10::make_intrusive<MusaStorage>(0, self.device()));
  return set_storage_view(self, std::move(empty), 0, 0, {});
}

void record_stream(at::Tensor& self, at::Stream stream) {
  TORCH_CHECK(stream.device_type() == kMusa, "record_stream: expected a musa stream but got one of ", stream.device());
  if (void* data = self.storage().mutable_data()) {
    record_block_stream(data, native_stream(stream));
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage_view);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("record_stream", &record_stream);
}

}  // namespace musa
