#include "mudnn/choice_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "mudnn/isa.h"
#include "musart/musart_sim.h"

namespace mudnn {
namespace {

// To be raised when variants, keys or kernels change so that old times mean nothing.
constexpr const char* kVersion = "torch_musa_sim choices 1";
constexpr const char* kChecksum = "checksum ";

uint64_t checksum(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

int variant_of(uint64_t key, std::string_view name) {
  const auto names = variant_names(key);
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

// key <tab> text <tab> variant <tab> variant=nanoseconds <tab> ...
bool parse_line(const std::string& line, uint64_t* key, Record* record) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) {
    fields.push_back(field);
  }
  if (fields.size() < 3) {
    return false;
  }
  char* end = nullptr;
  *key = strtoull(fields[0].c_str(), &end, 16);
  record->text = fields[1];
  record->variant = variant_of(*key, fields[2]);
  record->from_file = true;
  for (size_t i = 3; i < fields.size(); ++i) {
    const size_t sign = fields[i].rfind('=');
    const int variant = sign == std::string::npos ? -1 : variant_of(*key, fields[i].substr(0, sign));
    if (variant < 0) {
      return false;
    }
    record->times.push_back({variant, strtod(fields[i].c_str() + sign + 1, nullptr)});
  }
  return *end == '\0' && *key != 0 && record->variant >= 0;
}

std::string line_of(uint64_t key, const Record& record) {
  const auto names = variant_names(key);
  std::string line = hex(key) + '\t' + record.text + '\t' + names[record.variant];
  for (const MeasuredTime& time : record.times) {
    char number[32];
    snprintf(number, sizeof number, "=%.0f", time.nanoseconds);
    line += '\t' + std::string(names[time.variant]) + number;
  }
  return line + '\n';
}

std::string reason(const char* what) { return std::string(what) + ": " + strerror(errno); }

/// Holds the lock of a file beside the one that is replaced.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() {
    if (file_ >= 0) {
      close(file_);
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return file_ >= 0; }

 private:
  int file_;
};

}  // namespace

std::map<uint64_t, Record> read_choices(const std::string& path, const std::string& machine, std::string* problem) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return {};
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t first = text.find('\n');
  if (text.substr(0, first) != kVersion) {
    *problem = text.starts_with("torch_musa_sim choices ") ? "is of another version" : "is damaged";
    return {};
  }
  const size_t last = text.rfind(kChecksum);
  if (last == std::string::npos || text.substr(last) != kChecksum + hex(checksum(text.substr(0, last))) + '\n') {
    *problem = "is damaged";
    return {};
  }
  std::istringstream lines(text.substr(first + 1, last - first - 1));
  std::string line;
  std::getline(lines, line);
  if (line != machine) {
    *problem = "is of another machine (" + line + ")";
    return {};
  }
  std::map<uint64_t, Record> records;
  while (std::getline(lines, line)) {
    uint64_t key = 0;
    Record record;
    if (!parse_line(line, &key, &record)) {
      *problem = "is damaged";
      return {};
    }
    records.emplace(key, std::move(record));
  }
  return records;
}

std::string write_choices(
    const std::string& path, const std::string& machine, const std::map<uint64_t, Record>& records) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, error);
  }
  const FileLock lock(path + ".lock");
  if (!lock.held()) {
    return reason("can't be written");
  }
  std::string ignored;
  std::map<uint64_t, Record> all = read_choices(path, machine, &ignored);
  all.insert(records.begin(), records.end());
  std::string text = std::string(kVersion) + '\n' + machine + '\n';
  for (const auto& [key, record] : all) {
    text += line_of(key, record);
  }
  text += kChecksum + hex(checksum(text)) + '\n';
  const std::string fresh = path + "." + std::to_string(getpid()) + ".new";
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) {
      const std::string why = reason("can't be written");
      unlink(fresh.c_str());
      return why;
    }
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) {
    const std::string why = reason("can't be replaced");
    unlink(fresh.c_str());
    return why;
  }
  return "";
}

std::string machine_line() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown CPU";
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      name = line.substr(colon + 2);
      break;
    }
  }
  return std::string(isa_name(isa())) + ", " + name;
}

std::string choice_file_path() {
  const char* wanted = musaSimSettingValue("TORCH_MUSA_SIM_AUTOTUNE_CACHE");
  if (*wanted != '\0') {
    return wanted;
  }
  const char* caches = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  std::string folder;
  if (caches != nullptr && *caches == '/') {
    folder = caches;
  } else if (home != nullptr && *home == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return "";
  }
  return folder + "/torch_musa_sim/choices-" + hex(checksum(machine_line())).substr(8) + ".txt";
}

}  // namespace mudnn
