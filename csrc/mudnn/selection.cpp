#include "mudnn/selection.h"

#include <string.h>
#include <unistd.h>

#include <bit>

#include "mudnn/choice_file.h"
#include "musart/musart_sim.h"

namespace mudnn {
namespace {

constexpr const char* kProductVariants[] = {"dot", "dot, exchanged", "packed", "packed, exchanged", "reference"};
constexpr const char* kAttentionVariants[] = {"streams", "tiles", "reference"};

size_t slot_of(uint64_t key, size_t slots) { return static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 40) % slots; }

}  // namespace

TuneMode tune_mode() {
  static const TuneMode mode = [] {
    const char* value = musaSimSettingValue("TORCH_MUSA_SIM_AUTOTUNE");
    return strcmp(value, "1") == 0 ? TuneMode::kTimed : strcmp(value, "0") == 0 ? TuneMode::kModel : TuneMode::kCached;
  }();
  return mode;
}

std::span<const char* const> variant_names(Family family) {
  switch (family) {
    case Family::kProduct:
      return kProductVariants;
    case Family::kAttention:
      return kAttentionVariants;
  }
  return {};  // of a key in a file
}

uint64_t bucket_of(int64_t size) {
  if (size <= 2) {
    return static_cast<uint64_t>(std::max<int64_t>(size, 0));
  }
  const int power = std::bit_width(static_cast<uint64_t>(size - 1)) - 1;  // 2^power < size <= 2^(power + 1)
  const int64_t middle = int64_t{3} << (power - 1);
  return static_cast<uint64_t>(2 * power + (size <= middle ? 1 : 2));
}

int64_t bucket_size(uint64_t bucket) {
  if (bucket <= 2) {
    return static_cast<int64_t>(bucket);
  }
  const auto power = static_cast<int>((bucket - 1) / 2);
  return bucket % 2 == 1 ? int64_t{3} << (power - 1) : int64_t{2} << power;
}

ChoiceTable::ChoiceTable(std::string path, std::string machine) : path_(std::move(path)), machine_(std::move(machine)) {
  const std::lock_guard<std::mutex> lock(mutex_);
  read();
}

int ChoiceTable::find(uint64_t key) const {
  for (size_t at = slot_of(key, kSlots), tries = 0; tries < kSlots; ++tries, at = (at + 1) % kSlots) {
    const uint64_t there = slots_[at].key.load(std::memory_order_acquire);
    if (there == key) {
      return slots_[at].variant.load(std::memory_order_relaxed);
    }
    if (there == 0) {
      break;
    }
  }
  return -1;
}

std::optional<Record> ChoiceTable::record(uint64_t key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = records_.find(key);
  return found == records_.end() ? std::nullopt : std::optional<Record>(found->second);
}

int ChoiceTable::add(uint64_t key, Record record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (insert(key, std::move(record))) {
    write();
  }
  const auto found = records_.find(key);
  return found == records_.end() ? -1 : found->second.variant;
}

// Whether it is new. Lookups stay short: the table is never more than half full.
bool ChoiceTable::insert(uint64_t key, Record record) {
  if (records_.size() >= kSlots / 2 || records_.contains(key)) {
    return false;
  }
  size_t at = slot_of(key, kSlots);
  while (slots_[at].key.load(std::memory_order_relaxed) != 0) {
    at = (at + 1) % kSlots;
  }
  slots_[at].variant.store(record.variant, std::memory_order_relaxed);
  slots_[at].key.store(key, std::memory_order_release);
  records_.emplace(key, std::move(record));
  return true;
}

void ChoiceTable::complain(const std::string& why) {
  if (!complained_) {
    complained_ = true;
    // One write, so that the lines of several processes don't mix.
    const std::string line = "torch_musa_sim: warning: file of measured choices " + path_ + " " + why + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  }
}

void ChoiceTable::read() {
  if (path_.empty()) {
    return;
  }
  std::string problem;
  for (auto& [key, record] : read_choices(path_, machine_, &problem)) {
    insert(key, std::move(record));
  }
  if (!problem.empty()) {
    complain(problem + "; it is ignored");
  }
}

void ChoiceTable::write() {
  if (path_.empty()) {
    return;
  }
  const std::string problem = write_choices(path_, machine_, records_);
  if (!problem.empty()) {
    complain(problem + "; choices hold for this process only");
  }
}

ChoiceTable& choices() {
  static ChoiceTable& table = *new ChoiceTable(choice_file_path(), machine_line());
  return table;
}

}  // namespace mudnn
