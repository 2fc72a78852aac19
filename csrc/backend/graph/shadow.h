// A stream beside the clocks, to run device kernels on whose time is to be measured, not spent.
#pragma once

#include "backend/runtime/stream.h"

namespace musa::graph {

/// While it lives, the calling thread's current stream of a card is a shadow stream of its own. What is launched there
/// counts as work of `stream` (nullptr: of nobody) from `start_ns` on.
class OnShadow {
 public:
  explicit OnShadow(c10::DeviceIndex card, musaStream_t stream = nullptr, int64_t start_ns = 0);
  ~OnShadow();
  OnShadow(const OnShadow&) = delete;
  OnShadow& operator=(const OnShadow&) = delete;

  musaStream_t stream() const { return stream_; }
  /// What has been launched so far would have taken this long.
  int64_t elapsed_ns() const { return musaSimStreamTail(stream_) - start_; }

 private:
  c10::DeviceIndex card_;
  musaStream_t stream_;
  musaStream_t outer_;
  int64_t start_;
};

}  // namespace musa::graph
