// Copies between cards and page-locked memory that the host hasn't waited for yet, in the order of their launch.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "musart/access_map.h"
#include "musart/musart_races.h"

namespace musart {

struct DeferredCopy {
  musaSimDeferredCopy copy{};
  const std::string* op = nullptr;
  int actor = -1;
  uint64_t time = 0;
  uint64_t serial = 0;  // of its write to the card, for copies to a card
  musaSimFinish how = musaSimFinishCopy;

  Range host() const {
    const auto begin = reinterpret_cast<uintptr_t>(copy.host);
    return {begin, begin + copy.host_bytes};
  }
  Range device() const {
    const auto begin = reinterpret_cast<uintptr_t>(copy.device);
    return {begin, begin + copy.device_bytes};
  }
};

class DeferredCopies {
 public:
  void add(DeferredCopy copy) { copies_.push_back(std::move(copy)); }
  bool empty() const { return copies_.empty(); }

  template <class Wanted>
  std::vector<DeferredCopy> take(const Wanted& wanted) {
    std::vector<DeferredCopy> taken;
    std::deque<DeferredCopy> kept;
    for (DeferredCopy& copy : copies_) {
      (wanted(copy) ? taken.push_back(copy) : kept.push_back(copy));
    }
    if (!taken.empty()) copies_.swap(kept);
    return taken;
  }
  template <class Wanted>
  const DeferredCopy* find(const Wanted& wanted) const {
    for (const DeferredCopy& copy : copies_) {
      if (wanted(copy)) return &copy;
    }
    return nullptr;
  }

 private:
  std::deque<DeferredCopy> copies_;
};

inline bool overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace musart
