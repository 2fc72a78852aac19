// Best-fit bookkeeping of one card's addresses. Knows nothing of capacity, pages or locks.
#pragma once

#include <stddef.h>

#include <map>
#include <set>
#include <utility>

namespace musart {

class AddressSpace {
 public:
  static constexpr size_t kNone = ~size_t{0};

  struct Block {
    size_t size;    // what was asked for, rounded up to 512: counts against the capacity
    size_t extent;  // addresses taken, at least `size`
    int fd;         // the file behind a shareable block, else -1
    bool reserved = false;  // addresses alone: memory is mapped and unmapped in pieces
  };

  explicit AddressSpace(size_t size);

  // Offset of the smallest hole that holds `block.extent` bytes at a multiple of `alignment`; kNone when there is none.
  size_t allocate(const Block& block, size_t alignment);
  // Removes the block that begins at `offset`; false when none does.
  bool free(size_t offset, Block* block);
  // Bytes of the largest hole.
  size_t largest_hole() const { return holes_by_size_.empty() ? 0 : holes_by_size_.rbegin()->first; }
  // The block that contains `offset`; kNone when there is none.
  size_t find(size_t offset, Block* block) const;

 private:
  void add_hole(size_t offset, size_t size);
  void remove_hole(std::map<size_t, size_t>::iterator hole);

  std::map<size_t, Block> blocks_;                 // by offset
  std::map<size_t, size_t> holes_;                 // offset -> size
  std::set<std::pair<size_t, size_t>> holes_by_size_;  // (size, offset)
};

}  // namespace musart
