#include "backend/profiler/trace.h"

#include <algorithm>
#include <map>
#include <utility>

namespace musa::profiler {

namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using musart::ActivityKind;

// Torch numbers operators from 1 and looks launches up by the same key: ours begin where it won't get.
constexpr int32_t kFirstCorrelation = 1 << 30;
// Rows of host threads that wait for a card lie behind those of its streams.
constexpr int32_t kFirstWaitRow = 1 << 30;

bool is_work(ActivityKind kind) {
  return kind == ActivityKind::kKernel || kind == ActivityKind::kCopy || kind == ActivityKind::kFill;
}

bool is_wait(ActivityKind kind) {
  return kind == ActivityKind::kStreamSync || kind == ActivityKind::kDeviceSync || kind == ActivityKind::kEventSync;
}

/// "aten::add.Tensor" -> "musa_add_Tensor"; another namespace than aten's stays in the name.
std::string kernel_name(const std::string& op) {
  std::string name = "musa_";
  for (size_t i = op.starts_with("aten::") ? 6 : 0; i < op.size(); ++i) {
    if (op[i] == ':') {
      ++i;
    }
    name += op[i] == '.' || op[i] == ':' ? '_' : op[i];
  }
  return name;
}

/// The words that tools which read CUDA traces look for.
std::string copy_name(const DeviceEvent& event) {
  const char* host = event.pinned ? "Pinned" : "Pageable";
  if (event.from_device < 0) {
    return std::string("Memcpy HtoD (") + host + " -> Device)";
  }
  if (event.to_device < 0) {
    return std::string("Memcpy DtoH (Device -> ") + host + ")";
  }
  return event.from_device == event.to_device ? "Memcpy DtoD (Device -> Device)" : "Memcpy PtoP (Device -> Device)";
}

std::string device_name(const DeviceEvent& event) {
  switch (event.kind) {
    case ActivityKind::kKernel:
      return kernel_name(event.name);
    case ActivityKind::kCopy:
      return copy_name(event);
    case ActivityKind::kFill:
      return "Memset (Device)";
    case ActivityKind::kStreamSync:
      return "Stream Sync";
    case ActivityKind::kEventSync:
      return "Event Sync";
    default:
      return "Context Sync";
  }
}

const char* runtime_name(const DeviceEvent& event) {
  switch (event.kind) {
    case ActivityKind::kKernel:
      return "musaLaunchKernel";
    case ActivityKind::kCopy:
      return "musaMemcpyAsync";
    case ActivityKind::kFill:
      return "musaMemsetAsync";
    default:
      return event.name.c_str();
  }
}

ActivityType device_type(ActivityKind kind) {
  switch (kind) {
    case ActivityKind::kKernel:
      return ActivityType::CONCURRENT_KERNEL;
    case ActivityKind::kCopy:
      return ActivityType::GPU_MEMCPY;
    case ActivityKind::kFill:
      return ActivityType::GPU_MEMSET;
    default:
      // The host waits, the card doesn't work: a range, which tables leave out of the card's time.
      return ActivityType::GPU_USER_ANNOTATION;
  }
}

int32_t row_of(const DeviceEvent& event) {
  return is_wait(event.kind) ? kFirstWaitRow + event.thread : static_cast<int32_t>(event.stream);
}

bool has_row(const DeviceEvent& event) { return (is_work(event.kind) || is_wait(event.kind)) && event.device >= 0; }

class Writer {
 public:
  Writer(const Clocks& clocks, const libkineto::getLinkedActivityCallback& linked, libkineto::ActivityLogger& logger)
      : clocks_(clocks), linked_(linked), logger_(logger), buffer_(std::make_unique<libkineto::CpuTraceBuffer>()) {
    buffer_->span.name = "musa (virtual)";
    buffer_->span.startTime = clocks.wall_zero;
    buffer_->span.iteration = 0;
    buffer_->gpuOpCount = 0;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> write(const std::vector<DeviceEvent>& events) {
    write_annotations(events);
    int32_t correlation = kFirstCorrelation;
    for (const DeviceEvent& event : events) {
      ++correlation;
      write_call(event, correlation);
      if (has_row(event)) {
        write_device(event, correlation);
      }
    }
    buffer_->span.opCount = buffer_->gpuOpCount;
    return std::move(buffer_);
  }

 private:
  GenericTraceActivity& add(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    return *buffer_->activities.back();
  }

  const libkineto::ITraceActivity* find(uint64_t id) const {
    return id == 0 || !linked_ ? nullptr : linked_(static_cast<int32_t>(id));
  }

  /// Ranges of the user, on each stream from the first to the last work given inside of them.
  void write_annotations(const std::vector<DeviceEvent>& events) {
    struct Range {
      musaSimSpan span;
      const DeviceEvent* first;
      uint64_t id;
    };
    std::map<std::pair<uint64_t, std::pair<int, int64_t>>, size_t> known;
    std::vector<Range> ranges;  // in the order in which they were seen: an outer one before its inner ones
    for (const DeviceEvent& event : events) {
      if (!is_work(event.kind)) {
        continue;
      }
      for (const uint64_t id : event.annotations) {
        const auto [found, fresh] = known.try_emplace({id, {event.device, event.stream}}, ranges.size());
        if (fresh) {
          ranges.push_back({event.span, &event, id});
        } else {
          musaSimSpan& span = ranges[found->second].span;
          span.start_ns = std::min(span.start_ns, event.span.start_ns);
          span.end_ns = std::max(span.end_ns, event.span.end_ns);
        }
      }
    }
    for (const Range& range : ranges) {
      const libkineto::ITraceActivity* annotation = find(range.id);
      if (annotation == nullptr) {
        continue;
      }
      GenericTraceActivity& shown = add(ActivityType::GPU_USER_ANNOTATION, annotation->name());
      place(shown, *range.first, range.span);
      shown.log(logger_);
    }
  }

  void place(GenericTraceActivity& activity, const DeviceEvent& event, const musaSimSpan& span) {
    activity.startTime = clocks_.shown(span.start_ns);
    activity.endTime = clocks_.shown(span.end_ns);
    activity.device = event.device;
    activity.resource = row_of(event);
    buffer_->span.endTime = std::max(buffer_->span.endTime, activity.endTime);
  }

  /// The call in the host's thread, in wall time.
  void write_call(const DeviceEvent& event, int32_t correlation) {
    GenericTraceActivity& call = add(ActivityType::PRIVATEUSE1_RUNTIME, runtime_name(event));
    call.startTime = event.wall_start;
    call.endTime = event.wall_end;
    call.device = libkineto::processId();
    call.resource = event.thread;
    call.threadId = event.thread;
    call.id = correlation;
    call.linked = find(event.op);
    call.addMetadata("correlation", correlation);
    set_flow(call, event, correlation, /*is_call=*/true);
    call.log(logger_);
  }

  void write_device(const DeviceEvent& event, int32_t correlation) {
    GenericTraceActivity& activity = add(device_type(event.kind), device_name(event));
    place(activity, event, event.span);
    activity.addMetadata("device", event.device);
    activity.addMetadata("stream", event.stream);
    activity.addMetadata("correlation", correlation);
    if (is_work(event.kind)) {
      activity.id = correlation;
      activity.linked = find(event.op);
      activity.addMetadataQuoted("op", event.name);
      activity.addMetadata("bytes", static_cast<int64_t>(event.bytes));
      if (event.kind == ActivityKind::kKernel) {
        activity.addMetadata("flops", static_cast<int64_t>(event.flops));
      } else {
        const auto ns = static_cast<double>(std::max<int64_t>(event.span.end_ns - event.span.start_ns, 1));
        activity.addMetadata("memory bandwidth (GB/s)", event.bytes / ns);
      }
      if (event.kind == ActivityKind::kCopy) {
        activity.addMetadata("fromDevice", event.from_device);
        activity.addMetadata("toDevice", event.to_device);
      }
      ++buffer_->gpuOpCount;
    }
    set_flow(activity, event, correlation, /*is_call=*/false);
    activity.log(logger_);
  }

  /// The arrow between call and work. Arrows must not point back in time: where the simulated card was done before
  /// the host made the call, it begins at the card.
  void set_flow(GenericTraceActivity& activity, const DeviceEvent& event, int32_t correlation, bool is_call) const {
    if (is_work(event.kind)) {
      const bool from_call = event.wall_start <= clocks_.shown(event.span.start_ns);
      activity.flow.id = static_cast<uint32_t>(correlation);
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = is_call == from_call ? 1 : 0;
    }
  }

  const Clocks& clocks_;
  const libkineto::getLinkedActivityCallback& linked_;
  libkineto::ActivityLogger& logger_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

}  // namespace

std::unique_ptr<libkineto::CpuTraceBuffer> write_activities(
    const std::vector<DeviceEvent>& events, const Clocks& clocks, const libkineto::getLinkedActivityCallback& linked,
    libkineto::ActivityLogger& logger) {
  return Writer(clocks, linked, logger).write(events);
}

void write_rows(const std::vector<DeviceEvent>& events, const Clocks& clocks, libkineto::ActivityLogger& logger) {
  std::map<int, std::map<int32_t, std::string>> cards;
  for (const DeviceEvent& event : events) {
    if (has_row(event)) {
      cards[event.device].try_emplace(
          row_of(event),
          is_wait(event.kind) ? "host waits (thread " + std::to_string(event.thread) + ")"
                              : "stream " + std::to_string(event.stream));
    }
  }
  for (const auto& [card, rows] : cards) {
    const std::string name = "musa:" + std::to_string(card);
    logger.handleDeviceInfo({card, libkineto::kExceedMaxPid + card, name + " (virtual)", name}, clocks.wall_zero);
    for (const auto& [row, row_name] : rows) {
      logger.handleResourceInfo({row, row, card, row_name}, clocks.wall_zero);
    }
  }
}

}  // namespace musa::profiler
