// Who touched which bytes last: the last write and the reads since, for each range of addresses.
#pragma once

#include <stdint.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "musart/musart.h"
#include "musart/vector_clock.h"

namespace musart {

struct Access {
  int actor = -1;  // the stream; -1: nobody
  uint64_t time = 0;  // on that stream's component
  uint64_t serial = 0;
  uint32_t life = 0;  // of the block when it was touched
  const std::string* op = nullptr;

  bool ordered_before(const VectorClock& clock) const { return actor < 0 || time <= clock.of(actor); }
};

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// Two accesses that nothing orders, or one to memory that was freed (`earlier` then is the last access before, if any).
struct Conflict {
  Access earlier;
  bool earlier_wrote = false;
  bool freed = false;
  uint32_t life = 0;             // of the block now
  musaStream_t owner = nullptr;  // whom the block was handed out to
  Range range;                   // the bytes that both touch
};

class AccessMap {
 public:
  // The first conflict of an access by somebody who knows `clock`.
  std::optional<Conflict> find_conflict(Range range, bool write, const VectorClock& clock) const;
  void record(Range range, bool write, Access access, const VectorClock& clock);

  void hand_out(Range range, uint32_t life, musaStream_t owner);
  void take_back(Range range);
  // Forgets accesses that `clock` covers (all without one), and the state of the block stays.
  void settle(Range range, const VectorClock* clock);
  // The memory is gone.
  void erase(Range range);

  // Serial of the last write when all of the range was last written by one access, else 0.
  uint64_t written_by(Range range) const;
  size_t cells() const { return cells_.size(); }

 private:
  struct Cell {
    uintptr_t end = 0;
    uint32_t life = 0;
    bool freed = false;
    musaStream_t owner = nullptr;
    Access write;
    std::vector<Access> reads;
  };
  using Cells = std::map<uintptr_t, Cell>;

  Cells::const_iterator first_overlapping(uintptr_t begin) const;
  void cut_at(uintptr_t address);
  // Cuts cells at the ends of the range and fills its gaps.
  void cover(Range range);

  Cells cells_;  // by their first address; they don't overlap
};

}  // namespace musart
