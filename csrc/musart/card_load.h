// How much each card was at work, in virtual time: what utilisation, power and temperature are made of.
//
// A process writes its own row of counters, in the file that accounting.cpp shares, and other processes read it. The
// counters are plain loads and stores, as they lie on the path of every launch: when two threads launch on one card at
// the same moment, one launch may go uncounted.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <atomic>

#include "musart/musart_sim.h"

namespace musart {

// Utilisation is taken over the last one to two of these (up to three where single launches are that long), or over the
// whole life of a younger process.
constexpr int64_t kLoadWindowNs = 1'000'000'000;

struct LoadMark {
  std::atomic<int64_t> now_ns;     // latest end of a launch
  std::atomic<int64_t> busy_ns;    // total time in which something ran
  std::atomic<int64_t> memory_ns;  // total time that the bytes moved would need at full bandwidth
};

struct alignas(128) CardLoad {
  LoadMark total;
  LoadMark mark;      // `total` at the start of the current window
  LoadMark previous;  // ... of the window before; one window ago where the card lay idle in between
};

// Row of this process, by physical card. Points to private memory until accounting has opened its file.
extern std::atomic<CardLoad*> own_loads;

// Back to private memory: the row will belong to another process.
void stop_sharing_loads();

// After a launch that was counted from `begin_ns` to `load.total.now_ns` and moved bytes for `memory_ns`.
void start_load_window(CardLoad& load, int64_t begin_ns, int64_t memory_ns);

// Work ran on a card from span.start_ns to span.end_ns. What overlaps earlier work on another stream counts once.
inline void note_work(int physical, const musaSimSpan& span, int64_t memory_ns) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  CardLoad& load = own_loads.load(kRelaxed)[physical];
  const int64_t begin = std::max(span.start_ns, load.total.now_ns.load(kRelaxed));
  if (span.end_ns > begin) {
    load.total.busy_ns.store(load.total.busy_ns.load(kRelaxed) + span.end_ns - begin, kRelaxed);
    load.total.now_ns.store(span.end_ns, kRelaxed);
  }
  load.total.memory_ns.store(load.total.memory_ns.load(kRelaxed) + memory_ns, kRelaxed);
  if (__builtin_expect(span.end_ns - load.mark.now_ns.load(kRelaxed) > kLoadWindowNs, 0)) {
    start_load_window(load, begin, memory_ns);
  }
}

struct LoadShare {
  double busy = 0;    // 0 .. 1
  double memory = 0;  // 0 .. 1
};

// What share of the recent virtual time `load` was at work.
LoadShare load_share(const CardLoad& load);

}  // namespace musart
