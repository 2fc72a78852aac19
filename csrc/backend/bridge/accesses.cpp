#include "backend/bridge/accesses.h"

#include "backend/runtime/check.h"
#include "backend/runtime/host_allocator.h"

namespace musa {

MemoryRange memory_of(const c10::TensorImpl& tensor) {
  if (!tensor.has_storage() || tensor.numel() == 0 || tensor.unsafe_storage().data() == nullptr) {
    return {nullptr, 0};
  }
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const void* address = static_cast<const char*>(tensor.unsafe_storage().data()) +
      static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
  if (musart::is_alias_pointer(address)) {
    address = musart::to_device(address);
  }
  return {address, static_cast<size_t>(last + 1) * tensor.itemsize()};
}

void report_access(musaStream_t stream, const c10::TensorImpl& tensor, bool written, const char* op) {
  const MemoryRange memory = memory_of(tensor);
  if (memory.address != nullptr && musart::is_device_pointer(memory.address)) {
    MUSA_CHECK(musaSimAccess(stream, memory.address, memory.bytes, written ? 1 : 0, op));
  }
}

void check_host_tensor(const at::Tensor& tensor, const char* op) {
  if (!tensor.is_cpu() || tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    return;
  }
  const MemoryRange memory = memory_of(*tensor.unsafeGetTensorImpl());
  TORCH_CHECK(
      memory.address == nullptr || !musart::is_device_pointer(memory.address), op,
      " was given a CPU tensor that lies in the memory of a card: an operator has let it out. Please report which one "
      "made it; TORCH_MUSA_SIM_STRICT=0 computes with it.");
  if (memory.address != nullptr && is_pinned(memory.address)) {
    MUSA_CHECK(musaSimHostRead(memory.address, memory.bytes, op));
  }
}

}  // namespace musa
