#include "backend/runtime/allocator/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "musart/musart.h"

namespace musa::allocator {

namespace {

std::string card_name(int device) {
  musaDeviceProp properties{};
  std::string name = "Card " + std::to_string(device);
  if (musaGetDeviceProperties(&properties, device) == musaSuccess) {
    name += " (" + std::string(properties.name) + ")";
  }
  return name;
}

// With the exact figure where rounding would hide by how little it doesn't fit.
std::string format_request(size_t bytes) {
  const bool exact = bytes < 1024 || bytes % (size_t{1} << 20) == 0;
  return format_bytes(bytes) + (exact ? "" : " (" + std::to_string(bytes) + " bytes)");
}

std::string card_is_full(const OutOfMemory& facts) {
  std::ostringstream text;
  text << "MUSA out of memory. Tried to allocate " << format_request(facts.requested) << ". " << card_name(facts.device)
       << " has a total capacity of " << format_bytes(facts.capacity) << " of which " << format_bytes(facts.free)
       << " is free. ";
  const size_t taken = facts.capacity - std::min(facts.free, facts.capacity);
  if (taken > facts.reserved) {
    text << "Other processes of this user hold " << format_bytes(taken - facts.reserved) << ". ";
  }
  if (facts.allowed) {
    text << format_bytes(*facts.allowed) << " allowed to this process by its memory fraction. ";
  }
  const size_t cached = facts.reserved - std::min(facts.allocated, facts.reserved);
  text << "Of the allocated memory " << format_bytes(facts.allocated) << " is allocated by PyTorch, and "
       << format_bytes(cached) << " is reserved by PyTorch but unallocated. ";
  if (cached > facts.requested) {
    text << "The unallocated memory lies in pieces that are too small or belong to other streams: "
            "PYTORCH_MUSA_ALLOC_CONF=max_split_size_mb:<MiB> limits how large segments are cut up. ";
  }
  text << "Use a smaller batch, shard the model over more cards, or simulate a larger card "
          "(TORCH_MUSA_SIM_CARD, TORCH_MUSA_SIM_MEMORY).";
  return text.str();
}

std::string host_is_full(const OutOfMemory& facts) {
  std::ostringstream text;
  text << "MUSA out of memory: the host that simulates the card is full, not the card. Tried to allocate "
       << format_request(facts.requested) << ". " << card_name(facts.device) << " has a total capacity of "
       << format_bytes(facts.capacity) << " of which " << format_bytes(facts.free) << " is free";
  if (!facts.detail.empty()) {
    text << "; " << facts.detail;
  }
  text << ". Of the allocated memory " << format_bytes(facts.allocated) << " is allocated by PyTorch, and "
       << format_bytes(facts.reserved - std::min(facts.allocated, facts.reserved))
       << " is reserved by PyTorch but unallocated. Free memory of the host, use a smaller model or batch, or set "
          "TORCH_MUSA_SIM_HOST_MEMORY=overcommit to switch this check off (the kernel may then kill the process).";
  return text.str();
}

}  // namespace

std::string format_bytes(size_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes < 1024) {
    text << bytes << " bytes";
  } else if (bytes < size_t{1} << 20) {
    text << static_cast<double>(bytes) / 1024.0 << " KiB";
  } else if (bytes < size_t{1} << 30) {
    text << static_cast<double>(bytes) / 1048576.0 << " MiB";
  } else {
    text << static_cast<double>(bytes) / 1073741824.0 << " GiB";
  }
  return text.str();
}

void throw_out_of_memory(const OutOfMemory& facts) {
  TORCH_CHECK_WITH(OutOfMemoryError, false, facts.host_full ? host_is_full(facts) : card_is_full(facts));
  __builtin_unreachable();
}

}  // namespace musa::allocator
