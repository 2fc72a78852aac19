#include "musart/arena.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "musart/status.h"
#include "musart/text.h"

musaSimArena musaSimArenaInfo = {};

namespace musart {
namespace {

// PROT_NONE and NORESERVE: neither strict overcommit nor a memory cgroup counts it before it is committed.
constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* alias_of(uintptr_t device_address) {
  return reinterpret_cast<void*>(device_address + musaSimArenaInfo.alias_distance);
}

// Huge pages cut page faults; a forked child must not copy (or see) device memory.
void advise(void* alias, size_t bytes) {
  madvise(alias, bytes, MADV_HUGEPAGE);
  madvise(alias, bytes, MADV_DONTFORK);
}

// Address space the process may still take, and the name of the limit; SIZE_MAX when there is none.
size_t address_space_left(std::string* limit_name) {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  unsigned long pages = 0;
  if (FILE* statm = fopen("/proc/self/statm", "re")) {
    if (fscanf(statm, "%lu", &pages) != 1) pages = 0;
    fclose(statm);
  }
  const size_t used = pages * 4096;
  *limit_name = "RLIMIT_AS (ulimit -v) of " + format_bytes(limit.rlim_cur);
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

// `bytes` of closed address space at a multiple of kChunk; 0 when refused.
uintptr_t reserve(size_t bytes) {
  void* start = mmap(nullptr, bytes + kChunk, PROT_NONE, kReserveFlags, -1, 0);
  return start == MAP_FAILED ? 0 : (reinterpret_cast<uintptr_t>(start) + kChunk - 1) / kChunk * kChunk;
}

// Both sides of the arena. Apart, because the program itself lies in the middle of the address space.
bool reserve_both(size_t bytes) {
  const uintptr_t base = reserve(bytes);
  const uintptr_t alias = base == 0 ? 0 : reserve(bytes);
  if (alias == 0) {
    if (base != 0) munmap(reinterpret_cast<void*>(base), bytes);
    return false;
  }
  advise(reinterpret_cast<void*>(alias), bytes);
  musaSimArenaInfo.alias_base = alias;
  musaSimArenaInfo.alias_distance = static_cast<ptrdiff_t>(alias - base);
  musaSimArenaInfo.base = base;
  return true;
}

}  // namespace

musaError_t reserve_arena(int cards, size_t memory) {
  const size_t whole = (memory + kChunk - 1) / kChunk * kChunk;
  std::string limit = "the size of the address space (or vm.overcommit_memory)";
  const size_t left = address_space_left(&limit);
  // The rest of the process needs address space too: heap, thread stacks, mapped weights.
  const size_t most = left == SIZE_MAX ? SIZE_MAX : left / 2 / (2 * static_cast<size_t>(cards)) / kChunk * kChunk;

  // Room beyond the capacity keeps fragmentation of addresses from looking like a full card.
  size_t stride = std::min(most, 2 * whole + kChunk);
  bool reserved = false;
  for (const size_t wish : {2 * whole + kChunk, whole + whole / 32 / kChunk * kChunk + kChunk, whole}) {
    stride = std::min(most, wish);
    reserved = stride >= kChunk && stride * cards < (size_t{1} << 47) && reserve_both(stride * cards);
    if (reserved) break;
  }
  while (!reserved && stride >= 2 * kChunk) {
    stride = stride / 2 / kChunk * kChunk;
    reserved = reserve_both(stride * cards);
  }
  if (!reserved) {
    return fail(
        musaErrorInitializationError,
        "no address space for %d cards: %s leaves less than 2 MiB per card; raise the limit or lower "
        "TORCH_MUSA_SIM_CARDS",
        cards, limit.c_str());
  }
  if (stride < whole) {
    warn(
        "%s leaves %s of address space per card instead of %s; each of the %d cards has that much memory in this "
        "process. Raise the limit, or lower TORCH_MUSA_SIM_CARDS or TORCH_MUSA_SIM_MEMORY.",
        limit.c_str(), format_bytes(stride).c_str(), format_bytes(memory).c_str(), cards);
  }
  musaSimArenaInfo.stride = stride;
  musaSimArenaInfo.cards = cards;
  return musaSuccess;
}

bool commit(uintptr_t device_address, size_t bytes) {
  return mprotect(alias_of(device_address), bytes, PROT_READ | PROT_WRITE) == 0;
}

bool commit_shared(uintptr_t device_address, size_t bytes, int fd) {
  void* alias = alias_of(device_address);
  if (mmap(alias, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return false;
  madvise(alias, bytes, MADV_DONTFORK);
  return true;
}

void release(uintptr_t device_address, size_t bytes) {
  void* alias = alias_of(device_address);
  // A fresh mapping instead of MADV_DONTNEED: it also returns what strict overcommit had charged.
  if (mmap(alias, bytes, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0) == MAP_FAILED) {
    // Only the number of mappings can be exhausted; then keep the mapping and drop its pages.
    madvise(alias, bytes, MADV_DONTNEED);
    mprotect(alias, bytes, PROT_NONE);
    return;
  }
  advise(alias, bytes);
}

void close_alias_in_child() {
  const size_t half = musaSimArenaInfo.cards * musaSimArenaInfo.stride;
  if (half == 0) return;
  mmap(reinterpret_cast<void*>(musaSimArenaInfo.alias_base), half, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
}

}  // namespace musart
