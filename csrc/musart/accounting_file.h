// Layout and place of the file that the processes of one user and scope share; see accounting.h.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "musart/card_load.h"
#include "musart/settings.h"

namespace musart::accounting {

constexpr int kSlots = 2048;
constexpr uint64_t kMagic = 0x3341534d53554d31;

struct Owner {
  int32_t pid;  // 0: free
  int32_t unused;
  uint64_t start;  // of the process, so that a reused pid isn't taken for the old one
};

// Untouched slots of the sparse file take no memory.
struct Table {
  uint64_t magic;
  int32_t slots_used;  // slots from here on were never taken
  int32_t unused;
  Owner owners[kSlots];
  alignas(4096) uint64_t held[kSlots][kMaxCards];  // bytes
};

// Which cards a process simulates, for tools that were told nothing else.
struct alignas(4096) Setup {
  uint64_t memory;  // bytes of each card
  int32_t cards;    // of the host; 0: not written yet
  char card_file[2048];
};

// Behind the table: for each slot that was ever taken a row of CardLoad and a Setup.
constexpr size_t kLoadRow = sizeof(CardLoad) * kMaxCards;
constexpr size_t kRow = kLoadRow + sizeof(Setup);
constexpr off_t load_row_offset(int slot) { return static_cast<off_t>(sizeof(Table) + kRow * slot); }
constexpr off_t setup_offset(int slot) { return load_row_offset(slot) + static_cast<off_t>(kLoadRow); }
static_assert(sizeof(Table) % 4096 == 0 && kRow % 4096 == 0, "rows are mapped by themselves");

// The same for every process of this user, pid namespace and scope.
std::string file_name(const char* scope);
// Folders that may hold it, best first.
std::vector<std::string> file_folders();

// Start time of a process in clock ticks since boot; 0 when it isn't alive.
uint64_t process_start(int pid);

}  // namespace musart::accounting
