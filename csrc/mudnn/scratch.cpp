#include "mudnn/scratch.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <memory>
#include <new>

namespace mudnn {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

struct Arena {
  static constexpr int kSlots = 4;
  void* memory[kSlots] = {};
  size_t size[kSlots] = {};

  ~Arena() {
    for (void* block : memory) {
      free(block);
    }
  }
};

// A pointer, as the space for thread-local objects of a library that is loaded late is small.
thread_local std::unique_ptr<Arena> arena;

}  // namespace

void* scratch(int slot, size_t bytes) {
  if (arena == nullptr) {
    arena = std::make_unique<Arena>();
  }
  void*& memory = arena->memory[slot];
  size_t& size = arena->size[slot];
  if (size < bytes) {
    const size_t unit = bytes >= kHugePage ? kHugePage : size_t{64} << 10;
    const size_t rounded = (bytes + unit - 1) / unit * unit;
    free(memory);
    size = 0;
    memory = aligned_alloc(unit == kHugePage ? kHugePage : 64, rounded);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    if (unit == kHugePage) {
      (void)madvise(memory, rounded, MADV_HUGEPAGE);
    }
    size = rounded;
  }
  return memory;
}

}  // namespace mudnn
