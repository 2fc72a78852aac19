// What the card did while a profiler was on: every launch, copy, fill and wait, with the torch operator that caused it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "musart/watch.h"

namespace musa::profiler {

/// Nanoseconds since the epoch, the clock of torch's profiler.
int64_t wall_ns();

struct DeviceEvent {
  musart::ActivityKind kind;
  std::string name;  // of the operator or the runtime's call
  int device;
  int64_t stream;  // the runtime's id; -1: all streams of the card
  musaSimSpan span;  // virtual time
  int64_t wall_start;  // when the call was made, and when it was over
  int64_t wall_end;
  int32_t thread;  // the system's id of the calling thread
  double flops;
  double bytes;
  int to_device;
  int from_device;
  bool pinned;
  uint64_t op;  // the profiler's id of the innermost operator, 0: none
  std::vector<uint64_t> annotations;  // ids of the ranges of the user around it, outermost first
};

/// One recording: from start() to stop() every activity of the process.
class Recorder final : public musart::Watcher {
 public:
  /// There is one; it is never destroyed, as a thread may be in the middle of telling it something.
  static Recorder& instance();

  void start();
  void stop();
  /// Hands over what was recorded. `wall_zero` and `virtual_zero` are the two clocks at start().
  std::vector<DeviceEvent> take(int64_t* wall_zero, int64_t* virtual_zero);

  void saw(const musart::Activity& activity) noexcept override;

  // Of the calling thread; the profiler calls them around each operator and each range of the user.
  void push_op(uint64_t id);
  void pop_op();
  void push_annotation(uint64_t id);
  void pop_annotation();

 private:
  std::mutex mutex_;
  bool recording_ = false;
  int64_t wall_zero_ = 0;
  int64_t virtual_zero_ = 0;
  std::vector<DeviceEvent> events_;
  std::atomic<uint64_t> session_{0};  // ids that a thread kept from an earlier session are stale
};

}  // namespace musa::profiler
