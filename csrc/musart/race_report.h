// What a race report says: who, on which streams, which memory, what is missing and how to mend it.
#pragma once

#include <string>

#include "musart/access_map.h"
#include "musart/deferred_copies.h"

namespace musart {

// A stream as it was when it did its work.
struct Actor {
  musaStream_t handle = nullptr;
  int64_t id = 0;
  int card = 0;
};

std::string name_of(const Actor& actor);

struct Later {
  const char* op;
  bool writes;
  Actor stream;
};

// `known`: how far the later stream has waited for the earlier one, 0 for not at all.
std::string report_conflict(
    const Conflict& conflict, const Actor& earlier, const Later& later, const Actor& owner, uint64_t known);
// The host has read, or (`touched`) changed, memory before `copy` was done with it.
std::string report_host(const DeferredCopy& copy, const Actor& stream, const char* host_op, bool touched);

}  // namespace musart
