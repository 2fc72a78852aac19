// One line before the process dies of touching device memory from host code.
#pragma once

#include <stddef.h>

namespace musart {

// For SIGSEGV and SIGBUS; what was installed before runs afterwards.
void install_fault_handler();

// The block of an allocator (musaSimSetBlockLookup) that `address` lies in.
bool find_block(const void* address, const void** block, size_t* size);

}  // namespace musart
