// The host's virtual clock and the one formula that prices work. Nanoseconds since the first use of the device.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <atomic>

#include "musart/musart_sim.h"

namespace musart {

extern std::atomic<int64_t> host_clock;

// Reads MUSA_LAUNCH_BLOCKING.
void configure_clock();
bool launch_blocking();

// The host has submitted something that takes it `ns`; returns the time after that.
inline int64_t advance_host(int64_t ns) { return host_clock.fetch_add(ns, std::memory_order_relaxed) + ns; }

inline int64_t host_now() { return host_clock.load(std::memory_order_relaxed); }

// Raises `clock` to `time`.
inline void raise(std::atomic<int64_t>& clock, int64_t time) {
  int64_t seen = clock.load(std::memory_order_relaxed);
  while (seen < time && !clock.compare_exchange_weak(seen, time, std::memory_order_relaxed)) {
  }
}

// The host waited until `time` and spent `ns` on the call.
inline void wait_host(int64_t time, int64_t ns) {
  int64_t seen = host_clock.load(std::memory_order_relaxed);
  while (!host_clock.compare_exchange_weak(seen, std::max(seen, time) + ns, std::memory_order_relaxed)) {
  }
}

struct KernelTime {
  int64_t device_ns;  // on its stream
  int64_t memory_ns;  // the part in which it occupies the card's memory
};
KernelTime kernel_time(const musaSimCard& card, const musaSimCost& cost);

// How long moving `bytes` occupies the card's memory.
int64_t memory_ns(const musaSimCard& card, double bytes);

// Device time of a copy of `bytes`; devices of -1 are the host.
int64_t copy_ns(const musaSimCard& card, int to_device, int from_device, size_t bytes, bool pinned);

}  // namespace musart
