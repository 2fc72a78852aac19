#include "musart/accounting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "musart/settings.h"
#include "musart/status.h"

namespace musart::accounting {
namespace {

constexpr int kSlots = 2048;
constexpr uint64_t kMagic = 0x3141534d53554d31;  // changes with the layout

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

std::mutex& mutex = *new std::mutex;
std::string& path = *new std::string;
std::atomic<int> file{-1};
Table* table = nullptr;  // nullptr: private accounting
int slot = -1;
Owner self{};
bool closed = false;
uint64_t own[kMaxCards];  // this process's truth; the file holds a copy

uint64_t process_start(int pid) {
  char name[32];
  snprintf(name, sizeof name, "/proc/%d/stat", pid);
  FILE* stat_file = fopen(name, "re");
  if (stat_file == nullptr) return 0;
  char text[1024];
  const size_t length = fread(text, 1, sizeof text - 1, stat_file);
  fclose(stat_file);
  text[length] = '\0';
  const char* field = strrchr(text, ')');  // the name before it may hold anything
  if (field == nullptr || field[1] == '\0') return 0;
  field += 2;
  if (*field == 'Z' || *field == 'X') return 0;  // killed, its parent hasn't looked yet
  for (int i = 3; i < 22 && field != nullptr; ++i) {
    field = strchr(field, ' ');
    if (field != nullptr) ++field;
  }
  return field == nullptr ? 0 : strtoull(field, nullptr, 10);
}

bool is_self(const Owner& owner) { return owner.pid == self.pid && owner.start == self.start; }

// A process killed between the two writes of its entry leaves start 0, which is no one's.
bool is_alive(const Owner& owner) {
  return is_self(owner) || (owner.start != 0 && process_start(owner.pid) == owner.start);
}

// A private file of ours: anyone may create names in a world-writable folder.
bool open_file(const std::string& name) {
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
    ::close(fd);
    return false;
  }
  path = name;
  file = fd;
  return true;
}

void lock_file() {
  while (flock(file, LOCK_EX) != 0 && errno == EINTR) {
  }
}

void unlock_file() { flock(file, LOCK_UN); }

// The last process to leave removes the file; whoever had opened it meanwhile must open the new one.
bool lock_linked_file() {
  for (;;) {
    lock_file();
    struct stat status;
    if (fstat(file, &status) == 0 && status.st_nlink > 0) return true;
    ::close(file);  // also unlocks
    file = -1;
    if (table != nullptr) munmap(table, sizeof(Table));
    table = nullptr;
    slot = -1;
    const std::string name = path;
    if (!open_file(name)) return false;
  }
}

// Under the file's lock. Pages are allocated here: later a full tmpfs would mean SIGBUS.
bool map_table() {
  if (table != nullptr) return true;
  if (ftruncate(file, sizeof(Table)) != 0) return false;
  if (posix_fallocate(file, 0, offsetof(Table, held)) != 0) return false;
  void* mapped = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return false;
  // A child's copy of the mapping would keep the open file, and with it the lock of a killed parent.
  madvise(mapped, sizeof(Table), MADV_DONTFORK);
  table = static_cast<Table*>(mapped);
  if (table->magic != kMagic) {
    memset(static_cast<void*>(table), 0, offsetof(Table, held));
    table->magic = kMagic;
  }
  return true;
}

void drop_dead() {
  for (int i = 0; i < table->slots_used; ++i) {
    Owner& owner = table->owners[i];
    if (owner.pid != 0 && !is_alive(owner)) owner = {};
  }
}

bool take_slot() {
  if (slot >= 0 && is_self(table->owners[slot])) return true;
  drop_dead();
  for (int i = 0; i < kSlots; ++i) {
    if (table->owners[i].pid != 0) continue;
    const off_t at = static_cast<off_t>(offsetof(Table, held) + i * sizeof table->held[0]);
    if (posix_fallocate(file, at, sizeof table->held[0]) != 0) return false;
    memcpy(table->held[i], own, sizeof own);
    table->slots_used = std::max(table->slots_used, i + 1);
    table->owners[i] = self;
    slot = i;
    return true;
  }
  return false;
}

// Locks the file with a slot for this process in it; false: private accounting.
bool begin() {
  if (closed || file < 0) return false;
  if (!lock_linked_file()) return false;
  if (map_table() && take_slot()) return true;
  unlock_file();
  return false;
}

Usage sum(int card) {
  Usage result;
  result.own = own[card];
  for (int i = 0; i < table->slots_used; ++i) {
    if (i == slot || table->owners[i].pid == 0) continue;
    result.others += table->held[i][card];
    result.processes += table->held[i][card] != 0;
  }
  return result;
}

}  // namespace

musaError_t open(const char* scope) {
  const std::lock_guard<std::mutex> guard(mutex);
  self = {getpid(), 0, process_start(getpid())};
  closed = false;
  // Process ids mean nothing in another pid namespace.
  struct stat pids;
  const unsigned long long name_space = stat("/proc/self/ns/pid", &pids) == 0 ? pids.st_ino : 0;
  char name[192];
  snprintf(name, sizeof name, "/torch_musa_sim.%u.%llu.%s", geteuid(), name_space, scope);
  const char* temporary = getenv("TMPDIR");
  for (const char* folder : {"/dev/shm", temporary == nullptr ? "/tmp" : temporary, "/tmp"}) {
    if (!open_file(folder + std::string(name))) continue;
    if (begin()) {
      unlock_file();
      return musaSuccess;
    }
    if (file >= 0) ::close(file);
    file = -1;
  }
  warn(
      "neither /dev/shm nor a folder for temporary files can hold %s: each process has the cards for itself, out of "
      "memory and mem_get_info don't count other processes",
      name + 1);
  return musaSuccess;
}

bool acquire(int card, size_t bytes, size_t capacity, Usage* usage) {
  const std::lock_guard<std::mutex> guard(mutex);
  const bool shared = begin();
  if (shared) {
    *usage = sum(card);
    if (usage->own + usage->others + bytes > capacity && usage->others > 0) {
      drop_dead();
      *usage = sum(card);
    }
  } else {
    *usage = {own[card], 0, 0};
  }
  const bool fits = usage->own + usage->others + bytes <= capacity;
  if (fits) {
    own[card] += bytes;
    if (shared) table->held[slot][card] = own[card];
  }
  if (shared) unlock_file();
  return fits;
}

void release(int card, size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex);
  own[card] -= bytes;
  if (!begin()) return;
  table->held[slot][card] = own[card];
  unlock_file();
}

Usage usage(int card) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (!begin()) return {own[card], 0, 0};
  drop_dead();
  const Usage result = sum(card);
  unlock_file();
  return result;
}

void close() {
  if (self.pid != getpid()) return;  // a forked child: the mutex may be locked for ever
  const std::lock_guard<std::mutex> guard(mutex);
  if (!begin()) return;
  table->owners[slot] = {};
  drop_dead();
  const bool last =
      std::all_of(table->owners, table->owners + table->slots_used, [](const Owner& owner) { return owner.pid == 0; });
  if (last) unlink(path.c_str());
  closed = true;
  unlock_file();
}

void forget_in_child() {
  // The lock belongs to the open file, which the child shares: its copy must not outlive the parent.
  const int fd = file.exchange(-1);
  if (fd >= 0) ::close(fd);
}

}  // namespace musart::accounting
