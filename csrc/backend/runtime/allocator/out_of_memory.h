// The error a user reads when a card, or the host that plays it, has no memory left.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace musa::allocator {

struct OutOfMemory {
  int device = 0;
  size_t requested = 0;            // bytes
  size_t capacity = 0;             // bytes of the card
  size_t free = 0;                 // bytes of the card that no process holds
  std::optional<size_t> allowed;   // bytes this process may reserve, when a memory fraction was set
  size_t allocated = 0;            // bytes in tensors of this process
  size_t reserved = 0;             // bytes this process holds, in use or cached
  bool host_full = false;
  std::string detail;              // the runtime's own sentence
};

/// "2.00 GiB", "512 bytes".
std::string format_bytes(size_t bytes);

/// Throws c10::OutOfMemoryError.
[[noreturn]] void throw_out_of_memory(const OutOfMemory& facts);

}  // namespace musa::allocator
