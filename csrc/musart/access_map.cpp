#include "musart/access_map.h"

#include <algorithm>
#include <iterator>

namespace musart {

AccessMap::Cells::const_iterator AccessMap::first_overlapping(uintptr_t begin) const {
  auto cell = cells_.upper_bound(begin);
  if (cell != cells_.begin() && std::prev(cell)->second.end > begin) --cell;
  return cell;
}

std::optional<Conflict> AccessMap::find_conflict(Range range, bool write, const VectorClock& clock) const {
  for (auto it = first_overlapping(range.begin); it != cells_.end() && it->first < range.end; ++it) {
    const Cell& cell = it->second;
    const auto conflict = [&](const Access& earlier, bool wrote) {
      const Range both{std::max(range.begin, it->first), std::min(range.end, cell.end)};
      return Conflict{earlier, wrote, cell.freed, cell.life, cell.owner, both};
    };
    if (cell.freed) {
      const bool read_last = !cell.reads.empty();
      return conflict(read_last ? cell.reads.back() : cell.write, !read_last);
    }
    if (!cell.write.ordered_before(clock)) return conflict(cell.write, true);
    if (!write) continue;
    for (const Access& read : cell.reads) {
      if (!read.ordered_before(clock)) return conflict(read, false);
    }
  }
  return std::nullopt;
}

void AccessMap::cut_at(uintptr_t address) {
  auto after = cells_.upper_bound(address);
  if (after == cells_.begin()) return;
  auto cell = std::prev(after);
  if (cell->first == address || cell->second.end <= address) return;
  Cell right = cell->second;
  cell->second.end = address;
  cells_.emplace_hint(after, address, std::move(right));
}

void AccessMap::cover(Range range) {
  cut_at(range.begin);
  cut_at(range.end);
  uintptr_t next = range.begin;
  for (auto it = cells_.lower_bound(range.begin); next < range.end; ++it) {
    const uintptr_t start = it == cells_.end() ? range.end : std::min(it->first, range.end);
    if (start > next) {
      Cell gap;
      gap.end = start;
      it = cells_.emplace_hint(it, next, gap);
    }
    next = it->second.end;
  }
}

void AccessMap::record(Range range, bool write, Access access, const VectorClock& clock) {
  cover(range);
  const auto first = cells_.lower_bound(range.begin);
  const auto last = cells_.lower_bound(range.end);
  if (write) {
    // One access owns all of it from now on.
    Cell& merged = first->second;
    for (auto it = std::next(first); it != last; ++it) {
      merged.life = std::max(merged.life, it->second.life);
      if (it->second.life == merged.life) merged.owner = it->second.owner;
    }
    access.life = merged.life;
    merged.end = range.end;
    merged.freed = false;
    merged.write = access;
    merged.reads.clear();
    cells_.erase(std::next(first), last);
    return;
  }
  for (auto it = first; it != last; ++it) {
    Cell& cell = it->second;
    access.life = cell.life;
    // What is ordered before this read needs no remembering: who is ordered behind this read is behind that, too.
    std::erase_if(cell.reads, [&](const Access& read) { return read.ordered_before(clock); });
    cell.reads.push_back(access);
  }
}

void AccessMap::hand_out(Range range, uint32_t life, musaStream_t owner) {
  cover(range);
  for (auto it = cells_.lower_bound(range.begin); it != cells_.end() && it->first < range.end; ++it) {
    it->second.life = life;
    it->second.owner = owner;
    it->second.freed = false;
  }
}

void AccessMap::take_back(Range range) {
  cover(range);
  for (auto it = cells_.lower_bound(range.begin); it != cells_.end() && it->first < range.end; ++it) {
    it->second.freed = true;
  }
}

void AccessMap::settle(Range range, const VectorClock* clock) {
  cut_at(range.begin);
  cut_at(range.end);
  const auto covered = [&](const Access& access) { return clock == nullptr || access.ordered_before(*clock); };
  for (auto it = cells_.lower_bound(range.begin); it != cells_.end() && it->first < range.end; ++it) {
    if (covered(it->second.write)) it->second.write = Access{};
    std::erase_if(it->second.reads, covered);
  }
}

void AccessMap::erase(Range range) {
  cut_at(range.begin);
  cut_at(range.end);
  cells_.erase(cells_.lower_bound(range.begin), cells_.lower_bound(range.end));
}

uint64_t AccessMap::written_by(Range range) const {
  uint64_t serial = 0;
  uintptr_t next = range.begin;
  for (auto it = first_overlapping(range.begin); it != cells_.end() && next < range.end; ++it) {
    if (it->first > next || it->second.freed || (serial != 0 && it->second.write.serial != serial)) return 0;
    serial = it->second.write.serial;
    next = it->second.end;
  }
  return next >= range.end ? serial : 0;
}

}  // namespace musart
