#include "musart/address_space.h"

namespace musart {

AddressSpace::AddressSpace(size_t size) { add_hole(0, size); }

size_t AddressSpace::allocate(const Block& block, size_t alignment) {
  for (auto it = holes_by_size_.lower_bound({block.extent, 0}); it != holes_by_size_.end(); ++it) {
    const auto [size, offset] = *it;
    const size_t start = (offset + alignment - 1) / alignment * alignment;
    const size_t skipped = start - offset;
    if (skipped + block.extent > size) continue;
    remove_hole(holes_.find(offset));
    if (skipped > 0) add_hole(offset, skipped);
    if (skipped + block.extent < size) add_hole(start + block.extent, size - skipped - block.extent);
    blocks_.emplace(start, block);
    return start;
  }
  return kNone;
}

bool AddressSpace::free(size_t offset, Block* block) {
  const auto found = blocks_.find(offset);
  if (found == blocks_.end()) return false;
  *block = found->second;
  blocks_.erase(found);

  size_t start = offset;
  size_t end = offset + block->extent;
  auto next = holes_.lower_bound(offset);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      remove_hole(before);
    }
  }
  if (next != holes_.end() && next->first == end) {
    end += next->second;
    remove_hole(next);
  }
  add_hole(start, end - start);
  return true;
}

size_t AddressSpace::find(size_t offset, Block* block) const {
  auto it = blocks_.upper_bound(offset);
  if (it == blocks_.begin()) return kNone;
  --it;
  if (offset - it->first >= it->second.extent) return kNone;
  *block = it->second;
  return it->first;
}

void AddressSpace::add_hole(size_t offset, size_t size) {
  holes_.emplace(offset, size);
  holes_by_size_.emplace(size, offset);
}

void AddressSpace::remove_hole(std::map<size_t, size_t>::iterator hole) {
  holes_by_size_.erase({hole->second, hole->first});
  holes_.erase(hole);
}

}  // namespace musart
