#include "backend/bridge/counters.h"

#include <deque>
#include <mutex>
#include <unordered_map>

namespace musa {

namespace {

struct Registry {
  std::mutex mutex;
  std::deque<OpCounters> all;  // addresses stay valid
  std::unordered_map<std::string, OpCounters*> by_name;
};

Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

}  // namespace

OpCounters& counters_of(const std::string& name, bool bridged) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  OpCounters*& found = all.by_name[name];
  if (found == nullptr) {
    found = &all.all.emplace_back();
    found->name = name;
    found->bridged = bridged;
  }
  return *found;
}

std::vector<OpStatistics> op_statistics() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<OpStatistics> statistics;
  for (const OpCounters& op : all.all) {
    if (const uint64_t calls = op.calls.load(std::memory_order_relaxed)) {
      const uint64_t native = op.bridged ? op.native_calls.load(std::memory_order_relaxed) : calls;
      statistics.push_back(
          {op.name, native < calls, calls, native, op.bytes.load(std::memory_order_relaxed),
           op.device_ns.load(std::memory_order_relaxed), op.copies.load(std::memory_order_relaxed)});
    }
  }
  return statistics;
}

void reset_op_statistics() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (OpCounters& op : all.all) {
    op.calls.store(0, std::memory_order_relaxed);
    op.native_calls.store(0, std::memory_order_relaxed);
    op.bytes.store(0, std::memory_order_relaxed);
    op.device_ns.store(0, std::memory_order_relaxed);
    op.copies.store(0, std::memory_order_relaxed);
  }
}

}  // namespace musa
