// A segment that grows and shrinks where it lies: addresses for more than it will need, memory behind some of them.
#pragma once

#include <cstddef>

#include "backend/runtime/allocator/block.h"

namespace musa::allocator {

// Blocks of an expandable segment cover all of its addresses; those without memory are in state kUnmapped and in no
// set. A run of unmapped blocks is always one block.
struct ExpandableSegment {
  uintptr_t address = 0;
  size_t reserved = 0;  // bytes of addresses
  size_t mapped = 0;    // bytes of memory
};

constexpr size_t kPage = size_t{2} << 20;  // what is mapped and unmapped is a multiple of it

}  // namespace musa::allocator
