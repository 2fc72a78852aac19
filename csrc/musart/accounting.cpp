#include "musart/accounting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "musart/accounting_file.h"
#include "musart/status.h"

namespace musart::accounting {
namespace {

std::mutex& mutex = *new std::mutex;
std::string& path = *new std::string;
std::atomic<int> file{-1};
Table* table = nullptr;  // nullptr: private accounting
int slot = -1;
Owner self{};
bool closed = false;
Setup& own_setup = *new Setup{};
uint64_t own[kMaxCards];  // this process's truth; the file holds a copy

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
  struct stat status;
  if (fstat(file, &status) != 0) return false;
  const auto table_size = static_cast<off_t>(sizeof(Table));
  if (status.st_size < table_size && ftruncate(file, table_size) != 0) return false;
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

// The counters of this process's cards move into the file, with what they hold. A row that a slot was lost with stays
// mapped: a thread may be about to write to it.
bool map_loads(int taken) {
  if (posix_fallocate(file, load_row_offset(taken), kRow) != 0) return false;
  if (pwrite(file, &own_setup, sizeof own_setup, setup_offset(taken)) != sizeof own_setup) return false;
  void* mapped = mmap(nullptr, kLoadRow, PROT_READ | PROT_WRITE, MAP_SHARED, file, load_row_offset(taken));
  if (mapped == MAP_FAILED) return false;
  madvise(mapped, kLoadRow, MADV_DONTFORK);
  memcpy(mapped, static_cast<void*>(own_loads.load()), kLoadRow);
  own_loads.store(static_cast<CardLoad*>(mapped));
  return true;
}

bool take_slot() {
  if (slot >= 0 && is_self(table->owners[slot])) return true;
  drop_dead();
  for (int i = 0; i < kSlots; ++i) {
    if (table->owners[i].pid != 0) continue;
    const off_t at = static_cast<off_t>(offsetof(Table, held) + i * sizeof table->held[0]);
    if (posix_fallocate(file, at, sizeof table->held[0]) != 0 || !map_loads(i)) return false;
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

musaError_t open(const char* scope, const Setup& setup) {
  const std::lock_guard<std::mutex> guard(mutex);
  own_setup = setup;
  self = {getpid(), 0, process_start(getpid())};
  closed = false;
  const std::string name = file_name(scope);
  for (const std::string& folder : file_folders()) {
    if (!open_file(folder + "/" + name)) continue;
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
      name.c_str());
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

bool shared(int card, size_t* held) {
  const std::lock_guard<std::mutex> guard(mutex);
  *held = own[card];
  return file >= 0 && !closed;
}

void close() {
  if (self.pid != getpid()) return;  // a forked child: the mutex may be locked for ever
  const std::lock_guard<std::mutex> guard(mutex);
  if (!begin()) return;
  table->owners[slot] = {};
  stop_sharing_loads();
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
