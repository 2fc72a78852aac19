// What the rest of the runtime asks about captures.
#pragma once

#include <atomic>
#include <vector>

#include "musart/musart_capture.h"
#include "musart/runtime.h"

namespace musart {

extern std::atomic<int> active_captures;

// Whether allocating memory costs the calling thread time: not while it captures or launches a graph.
bool allocations_are_free();

// A place in a capture's order of nodes, kept by an event instead of a time.
class CapturePoint {
 public:
  bool is_set() const { return capture_.load(std::memory_order_relaxed) != 0; }
  void forget() { capture_.store(0, std::memory_order_relaxed); }

 private:
  friend musaError_t record_captured(MusaStream& stream, CapturePoint& point);
  friend musaError_t wait_captured(MusaStream& stream, const CapturePoint& point, bool recorded);
  friend musaError_t refuse_captured(const CapturePoint& point, const char* call);

  std::atomic<uint64_t> capture_{0};  // id, never reused
  std::vector<int> nodes_;
};

// The stream is known to take part in a capture.
musaError_t record_captured(MusaStream& stream, CapturePoint& point);
// At least one of the two takes part in a capture; `recorded`: the event has a time outside of captures.
musaError_t wait_captured(MusaStream& stream, const CapturePoint& point, bool recorded);

// Fail, and invalidate the capture, when `call` can't be part of one.
musaError_t refuse_captured(MusaStream& stream, const char* call);
musaError_t refuse_captured(const CapturePoint& point, const char* call);
musaError_t refuse_captured_card(Card& card, const char* call);

}  // namespace musart
