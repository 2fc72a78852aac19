// The process's address space for cards: addresses that programs see, and the alias that kernels use.
#pragma once

#include <stddef.h>

#include "musart/musart_sim.h"

namespace musart {

// What is committed or released is a multiple of this.
constexpr size_t kChunk = size_t{2} << 20;

// Reserves `cards` strides of at least `memory` bytes each and fills musaSimArenaInfo. Where the address space is
// refused the stride becomes smaller, with one warning that names the limit.
musaError_t reserve_arena(int cards, size_t memory);

// Makes `bytes` of the alias readable and writable, zeroed; `device_address` and `bytes` are multiples of kChunk.
// False when the host refuses (errno says why).
bool commit(uintptr_t device_address, size_t bytes);
// The same from a file, shared with whoever maps it.
bool commit_shared(uintptr_t device_address, size_t bytes, int fd);
// Gives the pages back to the host and closes the range.
void release(uintptr_t device_address, size_t bytes);

// In a forked child: the alias wasn't inherited, and nothing else may come to lie there.
void close_alias_in_child();

}  // namespace musart
