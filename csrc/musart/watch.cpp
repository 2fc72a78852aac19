#include "musart/watch.h"

#include <array>
#include <bit>

#include "musart/stream.h"

namespace musart {

std::atomic<uint32_t> watch_bits{0};

namespace {

// Indexed by the number of the bit. Constant-initialised: there before any other static object.
constinit std::array<std::atomic<Watcher*>, 32> watchers{};

thread_local musaError_t objection = musaSuccess;

}  // namespace

void watch(Watch bit, Watcher* watcher) {
  watchers[std::countr_zero(static_cast<uint32_t>(bit))].store(watcher, std::memory_order_release);
  watch_bits.fetch_or(bit, std::memory_order_release);
}

void unwatch(Watch bit) {
  watch_bits.fetch_and(~static_cast<uint32_t>(bit), std::memory_order_release);
  watchers[std::countr_zero(static_cast<uint32_t>(bit))].store(nullptr, std::memory_order_release);
}

void object(musaError_t status) noexcept {
  if (objection == musaSuccess) objection = status;
}

musaError_t tell(const Activity& activity) noexcept {
  objection = musaSuccess;
  if (__builtin_expect(activity.stream != nullptr && activity.stream->kind == MusaStream::Kind::kShadow, 0)) {
    if (activity.stream->stands_for == nullptr) return musaSuccess;
    Activity real = activity;
    real.stream = activity.stream->stands_for;
    return tell(real);
  }
  for (uint32_t bits = watched(); bits != 0; bits &= bits - 1) {
    if (Watcher* watcher = watchers[std::countr_zero(bits)].load(std::memory_order_acquire)) watcher->saw(activity);
  }
  return objection;
}

}  // namespace musart
