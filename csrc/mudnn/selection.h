// The choice among ways to compute the same: by a model of what each takes, or by times that were measured once and are
// kept in a file.
#pragma once

#include <stdint.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mudnn {

/// What TORCH_MUSA_SIM_AUTOTUNE says: never look at times, look at those in the file, or also measure what is missing.
enum class TuneMode { kModel, kCached, kTimed };
TuneMode tune_mode();

/// While on, a row's result must not depend on how many rows there are: only ways that sum in one order are chosen.
inline std::atomic<bool> batch_invariant{false};

/// Families of problems with several ways; the names of these stand in the file of choices.
enum class Family : uint8_t { kProduct = 1, kAttention = 2 };
std::span<const char* const> variant_names(Family family);
inline std::span<const char* const> variant_names(uint64_t key) {
  return variant_names(static_cast<Family>(key >> 60));
}

/// Sizes are put into buckets, two for each power of 2: 1, 2, 3, 4, 6, 8, 12, ... Returns its number, 0 for 0.
uint64_t bucket_of(int64_t size);
/// The largest size of a bucket.
int64_t bucket_size(uint64_t bucket);

/// Puts numbers of known widths, 60 bits in all, into what names a choice; the family is above them.
class KeyBuilder {
 public:
  explicit KeyBuilder(Family family) : family_(family) {}
  void add(uint64_t value, int bits) {
    const uint64_t most = (uint64_t{1} << bits) - 1;
    numbers_ = (numbers_ << bits) | std::min(value, most);
  }
  uint64_t key() const { return static_cast<uint64_t>(family_) << 60 | numbers_; }

 private:
  Family family_;
  uint64_t numbers_ = 0;
};

struct MeasuredTime {
  int variant;
  double nanoseconds;
};

struct Record {
  std::string text;  // the key for people
  int variant;
  std::vector<MeasuredTime> times;
  bool from_file;
};

/// Choices by key. Looking one up takes no lock. A new one goes to the file at once: other processes' are kept, and the
/// file is replaced as a whole. A file that is damaged, of another version or of another machine counts as empty, which
/// is said once on stderr; so is that it can't be written.
class ChoiceTable {
 public:
  /// `path` empty: nothing is kept. `machine`: one line that names what times depend on.
  ChoiceTable(std::string path, std::string machine);

  /// The variant chosen for the key; -1 where there is none.
  int find(uint64_t key) const;
  std::optional<Record> record(uint64_t key) const;
  /// Keeps the choice, unless there is one already. Returns the one in force.
  int add(uint64_t key, Record record);
  const std::string& path() const { return path_; }

 private:
  static constexpr size_t kSlots = 8192;
  struct Slot {
    std::atomic<uint64_t> key{0};
    std::atomic<int> variant{-1};
  };

  void read();
  void write();
  bool insert(uint64_t key, Record record);
  void complain(const std::string& why);

  std::string path_;
  std::string machine_;
  mutable std::mutex mutex_;
  std::map<uint64_t, Record> records_;
  std::array<Slot, kSlots> slots_;
  bool complained_ = false;
};

/// The table of this process, its file as TORCH_MUSA_SIM_AUTOTUNE_CACHE says.
ChoiceTable& choices();

/// The shortest of a few runs, in nanoseconds of the calling thread. Long ones are run once.
template <class F>
double least_time(F&& run) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  constexpr double kEnough = 50e6;
  double least = 0;
  double total = 0;
  // The first run finds neither code nor operands in the caches.
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    run();
    const double took = now() - start;
    least = i <= 1 ? took : std::min(least, took);
    total += took;
    if (total > kEnough) {
      break;
    }
  }
  return least;
}

}  // namespace mudnn
