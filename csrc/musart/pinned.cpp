#include "musart/pinned.h"

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
std::map<uintptr_t, size_t>& ranges = *new std::map<uintptr_t, size_t>;  // start -> bytes

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
  return address - it->first < it->second;
}

}  // namespace musart

using musart::fail;

extern "C" {

musaError_t musaMallocHost(void** pointer, size_t size) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr) return fail(musaErrorInvalidValue, "musaMallocHost: pointer is NULL");
  *pointer = nullptr;
  if (size == 0) return musaSuccess;
  void* mapped =
      size > PTRDIFF_MAX ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(
        musaErrorMemoryAllocation, "the host refused %s of page-locked memory: %s", musart::format_bytes(size).c_str(),
        size > PTRDIFF_MAX ? "absurd size" : strerror(errno));
  }
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const std::lock_guard<std::shared_mutex> lock(musart::mutex);
  musart::ranges.emplace(start, size);
  if (start < musart::lowest.load()) musart::lowest.store(start, std::memory_order_release);
  if (start + size > musart::highest.load()) musart::highest.store(start + size, std::memory_order_release);
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
    if (found == musart::ranges.end()) {
      return fail(musaErrorInvalidValue, "musaFreeHost: no page-locked memory begins at %p (freed twice?)", pointer);
    }
    size = found->second;
    musart::ranges.erase(found);
  }
  if (musart::watches_races()) musart::races::forget_host_memory(pointer, size);
  munmap(pointer, size);
  musart::advance_host(musart::current_card().figures.alloc_ns);
  return musaSuccess;
}

}  // extern "C"
