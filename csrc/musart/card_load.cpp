#include "musart/card_load.h"

#include "musart/settings.h"

namespace musart {
namespace {

CardLoad private_loads[kMaxCards];

void copy_mark(LoadMark& to, const LoadMark& from) {
  to.now_ns.store(from.now_ns.load());
  to.busy_ns.store(from.busy_ns.load());
  to.memory_ns.store(from.memory_ns.load());
}

}  // namespace

std::atomic<CardLoad*> own_loads{private_loads};

void stop_sharing_loads() { own_loads.store(private_loads); }

void start_load_window(CardLoad& load) {
  copy_mark(load.previous, load.mark);
  copy_mark(load.mark, load.total);
}

LoadShare load_share(const CardLoad& load) {
  const auto window = static_cast<double>(load.total.now_ns.load() - load.previous.now_ns.load());
  if (window <= 0) return {};
  // Another process may write while this one reads.
  const auto share = [window](int64_t now, int64_t before) {
    return std::clamp(static_cast<double>(now - before) / window, 0.0, 1.0);
  };
  return {
      share(load.total.busy_ns.load(), load.previous.busy_ns.load()),
      share(load.total.memory_ns.load(), load.previous.memory_ns.load())};
}

}  // namespace musart
