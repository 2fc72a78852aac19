// A point in a stream's work: has the host clock passed it?
#pragma once

#include <utility>

#include "musart/musart_races.h"

namespace musa {

/// An event recorded on a stream, for allocators. Asking doesn't disturb the virtual clock: the event is only queried
/// when the answer will be yes, because an unsuccessful query advances the host clock. It doesn't count as a wait of
/// the program's, either.
class StreamMarker {
 public:
  /// Marks the end of what `stream` has been given so far. A stream that no longer exists has nothing left to do.
  explicit StreamMarker(musaStream_t stream) noexcept {
    if (musaEventCreateWithFlags(&event_, musaEventDisableTiming) != musaSuccess) {
      event_ = nullptr;
    } else if (musaEventRecord(event_, stream) != musaSuccess) {
      destroy();
    } else {
      ready_ns_ = musaSimStreamTail(stream);
    }
  }
  ~StreamMarker() { destroy(); }
  StreamMarker(StreamMarker&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), ready_ns_(other.ready_ns_) {}
  StreamMarker& operator=(StreamMarker&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(ready_ns_, other.ready_ns_);
    return *this;
  }

  bool done() const noexcept {
    return !event_ || (musaSimHostClock() >= ready_ns_ && musaSimEventPassed(event_, 0) == musaSuccess);
  }
  void wait() const noexcept {
    if (event_) {
      musaSimEventPassed(event_, 1);
    }
  }

  musaEvent_t event() const noexcept { return event_; }

 private:
  void destroy() noexcept {
    if (event_) {
      musaEventDestroy(std::exchange(event_, nullptr));
    }
  }

  musaEvent_t event_ = nullptr;
  int64_t ready_ns_ = 0;
};

}  // namespace musa
