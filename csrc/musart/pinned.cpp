#include "musart/pinned.h"
#include "musart/fault_plan.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "musart/clock.h"
#include "musart/races.h"
#include "musart/runtime.h"
#include "musart/text.h"

namespace musart {
namespace {

std::shared_mutex& mutex = *new std::shared_mutex;
struct Range {
  size_t bytes;
  bool registered;  // memory of the program's own, by musaHostRegister
};
std::map<uintptr_t, Range>& ranges = *new std::map<uintptr_t, Range>;  // by start

// Bounds of all ranges ever made: most pointers that are asked about lie outside, and need no lock.
std::atomic<uintptr_t> lowest{UINTPTR_MAX};
std::atomic<uintptr_t> highest{0};

}  // namespace

bool is_pinned(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address < lowest.load(std::memory_order_acquire) || address >= highest.load(std::memory_order_acquire)) {
    return false;
  }
  const std::shared_lock<std::shared_mutex> lock(mutex);
  auto it = ranges.upper_bound(address);
  if (it == ranges.begin()) return false;
  --it;
  return address - it->first < it->second.bytes;
}

namespace {

void widen_bounds(uintptr_t start, size_t size) {
  if (start < lowest.load()) lowest.store(start, std::memory_order_release);
  if (start + size > highest.load()) highest.store(start + size, std::memory_order_release);
}

bool overlaps_a_range(uintptr_t start, size_t size) {
  const auto after = ranges.lower_bound(start);
  if (after != ranges.end() && after->first < start + size) return true;
  return after != ranges.begin() && start - std::prev(after)->first < std::prev(after)->second.bytes;
}

constexpr unsigned kRegisterFlags = 16;  // portable, mapped, io memory, read only

}  // namespace

}  // namespace musart

using musart::fail;

extern "C" {

musaError_t musaMallocHost(void** pointer, size_t size) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr) return fail(musaErrorInvalidValue, "musaMallocHost: pointer is NULL");
  *pointer = nullptr;
  if (size == 0) return musaSuccess;
  if (musart::faults::possible()) MUSART_TRY(musart::faults::before_call(musart::current_device(), "musaMallocHost"));
  void* mapped =
      size > PTRDIFF_MAX ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(
        musaErrorMemoryAllocation, "the host refused %s of page-locked memory: %s", musart::format_bytes(size).c_str(),
        size > PTRDIFF_MAX ? "absurd size" : strerror(errno));
  }
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const std::lock_guard<std::shared_mutex> lock(musart::mutex);
  musart::ranges.emplace(start, musart::Range{size, false});
  musart::widen_bounds(start, size);
  musart::advance_host(musart::current_card().figures.alloc_ns);
  *pointer = mapped;
  return musaSuccess;
}

musaError_t musaFreeHost(void* pointer) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr) return musaSuccess;
  size_t size = 0;
  {
    const std::lock_guard<std::shared_mutex> lock(musart::mutex);
    const auto found = musart::ranges.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == musart::ranges.end() || found->second.registered) {
      return fail(musaErrorInvalidValue, "musaFreeHost: no page-locked memory begins at %p (freed twice?)", pointer);
    }
    size = found->second.bytes;
    musart::ranges.erase(found);
  }
  if (musart::watches_races()) musart::races::forget_host_memory(pointer, size);
  munmap(pointer, size);
  musart::advance_host(musart::current_card().figures.alloc_ns);
  return musaSuccess;
}

musaError_t musaHostRegister(void* pointer, size_t size, unsigned int flags) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr || size == 0 || size > PTRDIFF_MAX) {
    return fail(musaErrorInvalidValue, "musaHostRegister: %zu bytes at %p are no range of memory", size, pointer);
  }
  if (flags >= musart::kRegisterFlags) {
    return fail(musaErrorInvalidValue, "musaHostRegister: flags %u; accepted: 0 .. 15", flags);
  }
  if (musart::is_device_pointer(pointer) || musart::is_alias_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaHostRegister: %p lies in a card's memory, not in the host's", pointer);
  }
  const auto start = reinterpret_cast<uintptr_t>(pointer);
  const std::lock_guard<std::shared_mutex> lock(musart::mutex);
  if (musart::overlaps_a_range(start, size)) {
    return fail(
        musaErrorHostMemoryAlreadyRegistered, "musaHostRegister: %zu bytes at %p hold page-locked memory already", size,
        pointer);
  }
  musart::ranges.emplace(start, musart::Range{size, true});
  musart::widen_bounds(start, size);
  musart::advance_host(musart::current_card().figures.alloc_ns);
  return musaSuccess;
}

musaError_t musaHostUnregister(void* pointer) {
  MUSART_TRY(musart::ready());
  const std::lock_guard<std::shared_mutex> lock(musart::mutex);
  const auto found = musart::ranges.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == musart::ranges.end() || !found->second.registered) {
    return fail(musaErrorHostMemoryNotRegistered, "musaHostUnregister: no registered memory begins at %p", pointer);
  }
  musart::ranges.erase(found);
  musart::advance_host(musart::current_card().figures.alloc_ns);
  return musaSuccess;
}

}  // extern "C"
