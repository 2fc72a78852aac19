#include "musart/accounting_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace musart::accounting {

std::string file_name(const char* scope) {
  // Process ids mean nothing in another pid namespace. The number of the layout keeps versions of the library apart.
  struct stat pids;
  const unsigned long long name_space = stat("/proc/self/ns/pid", &pids) == 0 ? pids.st_ino : 0;
  char name[192];
  snprintf(name, sizeof name, "torch_musa_sim.%u.%llu.v3.%s", geteuid(), name_space, scope);
  return name;
}

std::vector<std::string> file_folders() {
  const char* temporary = getenv("TMPDIR");
  return {"/dev/shm", temporary == nullptr ? "/tmp" : temporary, "/tmp"};
}

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

}  // namespace musart::accounting
