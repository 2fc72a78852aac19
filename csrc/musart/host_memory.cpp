#include "musart/host_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>

#include "musart/settings.h"
#include "musart/status.h"
#include "musart/text.h"

namespace musart {
namespace {

// Left to the host itself, beyond what the kernel reports as available.
constexpr int64_t kKept = int64_t{256} << 20;

struct Left {
  int64_t bytes;
  std::string limit;  // what sets it
};

// The first number of a one-line file; -1 when there is none ("max", or no such file).
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

// The value behind `key` in a file of "key value" lines; 0 when absent.
int64_t read_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    int64_t value = 0;
    if (word == key && file >> value) return value;
    file.ignore(4096, '\n');
  }
  return 0;
}

void lower(Left* left, int64_t bytes, const std::string& limit) {
  if (bytes < left->bytes) *left = {std::max<int64_t>(bytes, 0), limit};
}

// `folder` and the groups above it, up to `root`. Page cache counts as free: the kernel drops it first.
void lower_by_cgroup(Left* left, const std::string& root, std::string group, bool unified) {
  for (;;) {
    const std::string folder = root + (group == "/" ? "" : group);
    const int64_t limit = read_number(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    const int64_t used = read_number(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    if (limit >= 0 && limit < (int64_t{1} << 60) && used >= 0) {
      const std::string stat = folder + "/memory.stat";
      const std::string prefix = unified ? "" : "total_";
      const int64_t cache = read_field(stat, prefix + "inactive_file") + read_field(stat, prefix + "active_file");
      lower(left, limit - std::max<int64_t>(0, used - cache), "the memory cgroup " + folder);
    }
    if (group.empty() || group == "/") return;
    group.erase(group.rfind('/'));
    if (group.empty()) group = "/";
  }
}

Left host_left() {
  Left left{INT64_MAX, "no limit"};
  const int64_t available = read_field("/proc/meminfo", "MemAvailable:");
  if (available > 0) lower(&left, available * 1024, "the host's MemAvailable");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      lower_by_cgroup(&left, "/sys/fs/cgroup", group, true);
      if (group != "/") lower_by_cgroup(&left, "/sys/fs/cgroup", "/", true);
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      // In a container the named path may exist only outside; then the root is its group.
      lower_by_cgroup(&left, "/sys/fs/cgroup/memory", group, false);
    }
  }
  return left;
}

int64_t resident_bytes() {
  long long size = 0;
  long long resident = 0;
  if (FILE* statm = fopen("/proc/self/statm", "re")) {
    if (fscanf(statm, "%lld %lld", &size, &resident) != 2) resident = 0;
    fclose(statm);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

musaError_t check_host_memory(size_t bytes, int device) {
  const char* configured = setting("TORCH_MUSA_SIM_HOST_MEMORY");
  if (strcmp(configured, "overcommit") == 0) return musaSuccess;

  // Reading the kernel's files costs some 50 us. What was found lasts for commits of a sixteenth of it.
  static std::atomic<int64_t> credit{0};
  const auto wanted = static_cast<int64_t>(bytes);
  const int64_t limit = musaSimSettingBytes("TORCH_MUSA_SIM_HOST_MEMORY");
  Left left;
  if (limit >= 0) {
    left = {std::max<int64_t>(limit - resident_bytes(), 0), std::string("TORCH_MUSA_SIM_HOST_MEMORY=") + configured};
  } else {
    if (credit.fetch_sub(wanted, std::memory_order_relaxed) >= wanted) return musaSuccess;
    left = host_left();
    left.bytes = std::max<int64_t>(0, left.bytes - kKept);
    credit.store(left.bytes / 16, std::memory_order_relaxed);
  }
  if (wanted <= left.bytes) return musaSuccess;
  return fail(
      musaErrorSimHostMemory,
      "the host is out of memory, not card musa:%d: the card asked for %s and %s leaves %s. Free host memory, use "
      "smaller models or fewer processes; TORCH_MUSA_SIM_HOST_MEMORY=overcommit switches this check off.",
      device, format_bytes(bytes).c_str(), left.limit.c_str(), format_bytes(left.bytes).c_str());
}

}  // namespace musart
