// What one stream, event or the host knows of each stream: how far that stream's work is certainly done before its own.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <vector>

namespace musart {

class VectorClock {
 public:
  uint64_t of(int actor) const {
    const auto index = static_cast<size_t>(actor);
    return index < times_.size() ? times_[index] : 0;
  }
  void set(int actor, uint64_t time) {
    const auto index = static_cast<size_t>(actor);
    if (index >= times_.size()) times_.resize(index + 1);
    times_[index] = time;
  }
  // False when `other` knows nothing new.
  bool join(const VectorClock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size());
    bool changed = false;
    for (size_t i = 0; i < other.times_.size(); ++i) {
      changed |= other.times_[i] > times_[i];
      times_[i] = std::max(times_[i], other.times_[i]);
    }
    return changed;
  }

 private:
  std::vector<uint64_t> times_;
};

}  // namespace musart
