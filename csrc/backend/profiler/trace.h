// From a recording to the rows of a trace: one process per card, one row per stream, in virtual time.
#pragma once

#include <libkineto.h>
#include <output_base.h>

#include <memory>
#include <vector>

#include "backend/profiler/recorder.h"

namespace musa::profiler {

/// Where virtual time lies on the wall: what ran at `virtual_zero` is shown at `wall_zero`.
struct Clocks {
  int64_t wall_zero;
  int64_t virtual_zero;

  int64_t shown(int64_t virtual_ns) const { return wall_zero + (virtual_ns - virtual_zero); }
};

/// Gives the activities of `events` to `logger`; `linked` finds the operator or range of an id. The result owns what
/// the logger refers to and must live as long as the trace.
std::unique_ptr<libkineto::CpuTraceBuffer> write_activities(
    const std::vector<DeviceEvent>& events, const Clocks& clocks, const libkineto::getLinkedActivityCallback& linked,
    libkineto::ActivityLogger& logger);

/// Names the cards and streams of `events`.
void write_rows(const std::vector<DeviceEvent>& events, const Clocks& clocks, libkineto::ActivityLogger& logger);

}  // namespace musa::profiler
