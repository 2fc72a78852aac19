#include "backend/bridge/launch.h"

#include <span>

namespace musa {

namespace {

/// Bytes from the first to behind the last element.
size_t extent(const c10::TensorImpl& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return static_cast<size_t>(last + 1) * tensor.itemsize();
}

std::span<const musart::MemoryAccess> all_of(const std::unique_ptr<std::vector<musart::MemoryAccess>>& accesses) {
  return accesses ? std::span<const musart::MemoryAccess>(*accesses) : std::span<const musart::MemoryAccess>();
}

}  // namespace

void Launch::note_access(const c10::TensorImpl& tensor, bool written) {
  if (!tensor.has_storage() || tensor.numel() == 0 || tensor.unsafe_storage().data() == nullptr) {
    return;
  }
  const void* address = static_cast<const char*>(tensor.unsafe_storage().data()) +
      static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
  if (musart::is_alias_pointer(address)) {
    address = musart::to_device(address);
  }
  if (!accesses_) {
    accesses_ = std::make_unique<std::vector<musart::MemoryAccess>>();
  }
  const size_t bytes = extent(tensor);
  for (musart::MemoryAccess& known : *accesses_) {
    if (known.address == address && known.bytes == bytes) {
      known.written |= written;
      return;
    }
  }
  accesses_->push_back({address, bytes, written});
}

void Launch::tell_kernel(const OpCounters& counters, const musaSimCost& cost, const musaSimSpan& span) {
  musart::tell(
      {.kind = musart::ActivityKind::kKernel,
       .name = counters.name.c_str(),
       .device = musaSimStreamDevice(stream_),
       .stream = stream_,
       .span = span,
       .flops = cost.flops,
       .bytes = cost.bytes,
       .accesses = all_of(accesses_)});
}

musaError_t Launch::finish_copy(OpCounters& counters, const CopyRoute& route, size_t bytes) {
  musaSimSpan span{};
  const musaError_t status =
      musaSimLaunchCopy(stream_, route.to_device, route.from_device, bytes, route.pinned ? 1 : 0, &span);
  if (status != musaSuccess) {
    return status;
  }
  counters.add(static_cast<double>(bytes), span);
  if (is_watched()) {
    musart::tell(
        {.kind = musart::ActivityKind::kCopy,
         .name = counters.name.c_str(),
         .device = musaSimStreamDevice(stream_),
         .stream = stream_,
         .span = span,
         .bytes = static_cast<double>(bytes),
         .to_device = route.to_device,
         .from_device = route.from_device,
         .pinned = route.pinned,
         .accesses = all_of(accesses_)});
  }
  return musaSuccess;
}

}  // namespace musa
