// Why an allocation or a free must leave the fast path. One word for all reasons, so that the fast path reads one.
#pragma once

#include <atomic>
#include <cstdint>

namespace musa::allocator {

enum class Detour : uint32_t {
  kRouted = 1,    // some thread or stream allocates from a private pool
  kHistory = 2,   // allocations and frees are recorded
  kUncached = 4,  // every allocation goes to the card, or to an allocator of the program's own
  kFaults = 8,    // an allocation is planned to fail
};

extern constinit std::atomic<uint32_t> detours;

inline bool any_detour() noexcept { return detours.load(std::memory_order_relaxed) != 0; }
inline bool has_detour(Detour reason) noexcept {
  return (detours.load(std::memory_order_relaxed) & static_cast<uint32_t>(reason)) != 0;
}
inline bool any_detour_but(Detour reason) noexcept {
  return (detours.load(std::memory_order_relaxed) & ~static_cast<uint32_t>(reason)) != 0;
}
inline void set_detour(Detour reason, bool on) noexcept {
  if (on) {
    detours.fetch_or(static_cast<uint32_t>(reason));
  } else {
    detours.fetch_and(~static_cast<uint32_t>(reason));
  }
}

}  // namespace musa::allocator
