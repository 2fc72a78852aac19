#include "backend/profiler/recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

namespace musa::profiler {

namespace {

/// The operators and ranges that the calling thread is inside of.
struct Inside {
  uint64_t session = 0;
  std::vector<uint64_t> ops;
  std::vector<uint64_t> annotations;

  Inside& of(uint64_t current) {
    if (session != current) {
      session = current;
      ops.clear();
      annotations.clear();
    }
    return *this;
  }
};
thread_local Inside inside;

int32_t thread_id() {
  thread_local const auto id = static_cast<int32_t>(syscall(SYS_gettid));
  return id;
}

/// A copy operator within one card runs as a kernel, which can also convert. One that only moves dense bytes is what
/// other devices show as a copy.
bool moves_bytes(const musart::Activity& activity) {
  const auto& accesses = activity.accesses;
  return activity.kind == musart::ActivityKind::kKernel && accesses.size() == 2 &&
      accesses[0].bytes == accesses[1].bytes && 2 * static_cast<double>(accesses[0].bytes) == activity.bytes &&
      std::strcmp(activity.name, "aten::_copy_from") == 0;
}

void pop(std::vector<uint64_t>& ids) {
  if (!ids.empty()) {  // an operator that began before the session has no entry
    ids.pop_back();
  }
}

}  // namespace

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder();
  return *recorder;
}

void Recorder::start() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.clear();
    recording_ = true;
    session_.fetch_add(1, std::memory_order_relaxed);
    wall_zero_ = wall_ns();
    virtual_zero_ = musaSimHostClock();
  }
  musart::watch(musart::kWatchProfiler, this);
}

void Recorder::stop() {
  musart::unwatch(musart::kWatchProfiler);
  const std::lock_guard<std::mutex> lock(mutex_);
  recording_ = false;
}

std::vector<DeviceEvent> Recorder::take(int64_t* wall_zero, int64_t* virtual_zero) {
  const std::lock_guard<std::mutex> lock(mutex_);
  *wall_zero = wall_zero_;
  *virtual_zero = virtual_zero_;
  return std::exchange(events_, {});
}

void Recorder::saw(const musart::Activity& activity) noexcept {
  using musart::ActivityKind;
  switch (activity.kind) {
    case ActivityKind::kStreamQuery:
    case ActivityKind::kEventQuery:
    case ActivityKind::kStreamDestroy:
    case ActivityKind::kEventDestroy:
      return;
    default:
      break;
  }
  const int64_t wall_start = wall_ns();
  const Inside& where = inside.of(session_.load(std::memory_order_relaxed));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!recording_) {
    return;
  }
  DeviceEvent& event = events_.emplace_back(
      DeviceEvent{
          .kind = activity.kind,
          .name = activity.name,
          .device = activity.device,
          .stream = activity.stream != nullptr ? musaSimStreamId(activity.stream) : -1,
          .span = activity.span,
          .wall_start = wall_start,
          .wall_end = wall_ns(),
          .thread = thread_id(),
          .flops = activity.flops,
          .bytes = activity.bytes,
          .to_device = activity.to_device,
          .from_device = activity.from_device,
          .pinned = activity.pinned,
          .op = where.ops.empty() ? 0 : where.ops.back(),
          .annotations = where.annotations});
  if (moves_bytes(activity)) {
    event.kind = ActivityKind::kCopy;
    event.bytes /= 2;
    event.to_device = event.from_device = event.device;
  }
}

void Recorder::push_op(uint64_t id) { inside.of(session_.load(std::memory_order_relaxed)).ops.push_back(id); }
void Recorder::pop_op() { pop(inside.of(session_.load(std::memory_order_relaxed)).ops); }
void Recorder::push_annotation(uint64_t id) {
  inside.of(session_.load(std::memory_order_relaxed)).annotations.push_back(id);
}
void Recorder::pop_annotation() { pop(inside.of(session_.load(std::memory_order_relaxed)).annotations); }

}  // namespace musa::profiler
