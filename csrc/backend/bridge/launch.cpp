#include "backend/bridge/launch.h"

#include <span>

#include "backend/bridge/accesses.h"
#include "backend/runtime/check.h"
#include "musart/musart_faults.h"

namespace musa {

namespace {

std::span<const musart::MemoryAccess> all_of(const std::unique_ptr<std::vector<musart::MemoryAccess>>& accesses) {
  return accesses ? std::span<const musart::MemoryAccess>(*accesses) : std::span<const musart::MemoryAccess>();
}

}  // namespace

void Launch::note_access(const c10::TensorImpl& tensor, bool written, const char* op) {
  if ((watched_ & musart::kWatchRaces) != 0) {
    report_access(stream_, tensor, written, op);
  }
  const auto [address, bytes] = memory_of(tensor);
  if (address == nullptr) {
    return;
  }
  if (!accesses_) {
    accesses_ = std::make_unique<std::vector<musart::MemoryAccess>>();
  }
  for (musart::MemoryAccess& known : *accesses_) {
    if (known.address == address && known.bytes == bytes) {
      known.written |= written;
      return;
    }
  }
  accesses_->push_back({address, bytes, written});
}

void Launch::check(const char* op) const {
  const musaError_t status = musaSimBeforeWork(stream_, musaSimFaultLaunch, op);
  if (status != musaSuccess) {
    throw_runtime_error(status, "musaLaunchKernel");
  }
}

void Launch::check_copy(const char* op, const CopyRoute& route) const {
  musaError_t status = musaSimBeforeWork(stream_, musaSimFaultCopy, op);
  for (const int device : {route.to_device, route.from_device}) {
    if (status == musaSuccess && device >= 0) {
      status = musaSimCheckCard(device, op);
    }
  }
  if (status != musaSuccess) {
    throw_runtime_error(status, "musaMemcpyAsync");
  }
}

musaError_t Launch::tell_kernel(const OpCounters& counters, const musaSimCost& cost, const musaSimSpan& span) {
  return musart::tell(
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
    return musart::tell(
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
