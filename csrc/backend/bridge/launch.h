// The one way in which an operator's work reaches the card: begin before the kernel runs, finish after it. Clock,
// counters and whoever watches (musart/watch.h) learn of it here.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/macros/Macros.h>

#include <memory>
#include <vector>

#include "backend/bridge/counters.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/threads.h"
#include "musart/watch.h"

namespace musa {

/// A copy between two devices, a negative one being the host.
struct CopyRoute {
  int to_device;
  int from_device;
  bool pinned;  // the host side is page-locked
};

class Launch {
 public:
  /// When the card is known: prepares the thread, takes its current stream and looks once whether anybody watches.
  void begin(c10::DeviceIndex device) {
    ensure_initialized();
    sync_thread_count();
    stream_ = current_native_stream(device);
    watched_ = musart::watched();
  }

  musaStream_t stream() const { return stream_; }
  bool is_watched() const { return C10_UNLIKELY(watched_ != 0); }

  /// Only when is_watched(), before the kernel runs. Throws when the card is dead, or this very work is to fail.
  void check(const char* op) const;
  void check_copy(const char* op, const CopyRoute& route) const;

  /// To be called for every tensor that the kernel touches, only when is_watched(). A tensor shown to the CPU kernel
  /// is as good as the musa tensor. One noted as read and again as written counts as written. Throws, under the race
  /// checker, when `op` races with an earlier one.
  void note_access(const c10::TensorImpl& tensor, bool written, const char* op);

  /// The kernel has run: advances clock and counters. An error is the runtime's, or what a watcher objects to.
  musaError_t finish_kernel(OpCounters& counters, const musaSimCost& cost) {
    musaSimSpan span{};
    const musaError_t status = musaSimLaunch(stream_, &cost, &span);
    if (C10_UNLIKELY(status != musaSuccess)) {
      return status;
    }
    counters.add(cost.bytes, span);
    return is_watched() ? tell_kernel(counters, cost, span) : musaSuccess;
  }

  /// As finish_kernel for a copy of `bytes`; the host waits for a pageable one.
  musaError_t finish_copy(OpCounters& counters, const CopyRoute& route, size_t bytes);

 private:
  musaError_t tell_kernel(const OpCounters& counters, const musaSimCost& cost, const musaSimSpan& span);

  musaStream_t stream_ = nullptr;
  uint32_t watched_ = 0;
  std::unique_ptr<std::vector<musart::MemoryAccess>> accesses_;  // made at the first note
};

}  // namespace musa
