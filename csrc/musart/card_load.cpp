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

void start_load_window(CardLoad& load, int64_t begin_ns, int64_t memory_ns) {
  const int64_t end_ns = load.total.now_ns.load();
  if (end_ns - load.mark.now_ns.load() <= 2 * kLoadWindowNs) {
    copy_mark(load.previous, load.mark);
  } else {
    // This launch is long, or the card lay idle before it. Any other work ended within a window of the old mark, so
    // this launch alone says what the counters showed one window ago.
    const int64_t length = std::max<int64_t>(end_ns - begin_ns, 0);
    const int64_t inside = std::min(length, kLoadWindowNs);
    const double part = length > 0 ? static_cast<double>(inside) / static_cast<double>(length) : 1.0;
    const auto memory_inside = static_cast<int64_t>(part * static_cast<double>(memory_ns));
    load.previous.now_ns.store(end_ns - kLoadWindowNs);
    load.previous.busy_ns.store(load.total.busy_ns.load() - inside);
    load.previous.memory_ns.store(load.total.memory_ns.load() - memory_inside);
  }
  copy_mark(load.mark, load.total);
}

LoadShare load_share(const CardLoad& load) {
  const int64_t end_ns = load.total.now_ns.load();
  // The clock goes on without launches, and only they start windows.
  const int64_t since_mark = end_ns - load.mark.now_ns.load();
  if (since_mark > 2 * kLoadWindowNs) return {};
  const LoadMark& start = since_mark >= kLoadWindowNs ? load.mark : load.previous;
  const auto window = static_cast<double>(end_ns - start.now_ns.load());
  if (window <= 0) return {};
  // Another process may write while this one reads.
  const auto share = [window](int64_t now, int64_t before) {
    return std::clamp(static_cast<double>(now - before) / window, 0.0, 1.0);
  };
  return {
      share(load.total.busy_ns.load(), start.busy_ns.load()),
      share(load.total.memory_ns.load(), start.memory_ns.load())};
}

}  // namespace musart
