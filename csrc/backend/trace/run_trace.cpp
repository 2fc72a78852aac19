#include "backend/trace/run_trace.h"

#include <utility>

#include "backend/runtime/caching_allocator.h"

namespace musa {

namespace {

bool is_shown(musart::ActivityKind kind) {
  using musart::ActivityKind;
  switch (kind) {
    case ActivityKind::kKernel:
    case ActivityKind::kCopy:
    case ActivityKind::kFill:
    case ActivityKind::kStreamSync:
    case ActivityKind::kDeviceSync:
    case ActivityKind::kEventSync:
      return true;
    default:
      return false;
  }
}

}  // namespace

RunTrace& RunTrace::instance() {
  static auto* trace = new RunTrace();
  return *trace;
}

void RunTrace::start() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    now_ = {};
    names_.clear();
    recording_ = true;
  }
  musart::watch(musart::kWatchTrace, this);
}

void RunTrace::stop() {
  musart::unwatch(musart::kWatchTrace);
  const std::lock_guard<std::mutex> lock(mutex_);
  recording_ = false;
}

RunTrace::Recording RunTrace::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  names_.clear();
  return std::exchange(now_, {});
}

void RunTrace::saw(const musart::Activity& activity) noexcept {
  if (!is_shown(activity.kind) || activity.device < 0) {
    return;
  }
  const auto device = static_cast<c10::DeviceIndex>(activity.device);
  const int64_t allocated = device_allocator()->getDeviceStats(device).allocated_bytes[0].current;
  const int64_t stream = activity.stream != nullptr ? musaSimStreamId(activity.stream) : -1;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!recording_) {
    return;
  }
  if (now_.events.size() >= kMostEvents) {
    ++now_.dropped;
    return;
  }
  // Names live as long as the process, so their addresses tell them apart.
  const auto [entry, is_new] = names_.try_emplace(activity.name, static_cast<int32_t>(now_.names.size()));
  if (is_new) {
    now_.names.emplace_back(activity.name);
  }
  now_.events.push_back(
      {.start_ns = activity.span.start_ns,
       .end_ns = activity.span.end_ns,
       .bytes = activity.bytes,
       .allocated = allocated,
       .stream = stream,
       .name = entry->second,
       .device = static_cast<int16_t>(activity.device),
       .kind = static_cast<uint8_t>(activity.kind),
       .unused = 0});
}

}  // namespace musa
