#include "musart/clock.h"

#include "musart/settings.h"

namespace musart {

std::atomic<int64_t> host_clock{0};

namespace {

bool blocking = false;

constexpr double kLongest = 1e16;  // 115 days: an absurd cost must not overflow a clock

// Whole nanoseconds for `amount` units at `rate` units per second, rounded up.
inline int64_t duration(double amount, double rate) {
  const double ns = std::min(amount * 1e9 / rate, kLongest);
  auto whole = static_cast<int64_t>(ns);
  if (static_cast<double>(whole) < ns) ++whole;
  return whole;
}

}  // namespace

void configure_clock() { blocking = musaSimSettingFlag("MUSA_LAUNCH_BLOCKING"); }

bool launch_blocking() { return blocking; }

KernelTime kernel_time(const musaSimCard& card, const musaSimCost& cost) {
  const int64_t compute = duration(cost.flops, card.peak[cost.dtype]);
  const int64_t memory = duration(cost.bytes, card.bandwidth);
  return {card.kernel_ns + std::max(compute, memory), memory};
}

int64_t memory_ns(const musaSimCard& card, double bytes) { return duration(bytes, card.bandwidth); }

int64_t copy_ns(const musaSimCard& card, int to_device, int from_device, size_t bytes, bool pinned) {
  double rate = card.card_link;
  auto amount = static_cast<double>(bytes);
  if (from_device < 0) {
    rate = pinned ? card.host_link : card.host_link_pageable;
  } else if (to_device < 0) {
    rate = pinned ? card.host_link_back : card.host_link_pageable_back;
  } else if (to_device == from_device) {
    rate = card.bandwidth;
    amount *= 2;  // read and written
  }
  return card.copy_ns + duration(amount, rate);
}

}  // namespace musart

extern "C" {

int64_t musaSimKernelNs(const musaSimCard* card, const musaSimCost* cost) {
  return musart::kernel_time(*card, *cost).device_ns;
}

int64_t musaSimHostClock(void) { return musart::host_now(); }

void musaSimHostAdvance(int64_t nanoseconds) {
  if (nanoseconds > 0) musart::advance_host(nanoseconds);
}

}  // extern "C"
