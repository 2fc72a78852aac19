// What each operator did: the figures behind reports and the coverage of native kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "musart/musart_sim.h"

namespace musa {

/// Monotonic since start or reset. `copies` are results that had to be moved from host memory to the card.
struct OpCounters {
  std::string name;
  bool bridged = false;
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> native_calls{0};  // of a bridged operator: those that a kernel of ours served
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> device_ns{0};
  std::atomic<uint64_t> copies{0};

  void add(double moved_bytes, const musaSimSpan& span) {
    calls.fetch_add(1, std::memory_order_relaxed);
    bytes.fetch_add(static_cast<uint64_t>(moved_bytes), std::memory_order_relaxed);
    device_ns.fetch_add(static_cast<uint64_t>(span.end_ns - span.start_ns), std::memory_order_relaxed);
  }
};

struct OpStatistics {
  std::string name;
  bool bridged;  // some of the calls ran PyTorch's CPU kernel
  uint64_t calls;
  uint64_t native_calls;
  uint64_t bytes;      // read plus written in device memory
  uint64_t device_ns;  // virtual time
  uint64_t copies;
};

/// The counters of an operator, created at first use and never freed. Takes a lock: look it up once.
OpCounters& counters_of(const std::string& name, bool bridged);

/// Operators called since the last reset, in order of first use.
std::vector<OpStatistics> op_statistics();
void reset_op_statistics();

}  // namespace musa
