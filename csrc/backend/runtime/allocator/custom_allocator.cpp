#include "backend/runtime/allocator/custom_allocator.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/detours.h"

namespace musa {

namespace {

struct Choice {
  std::mutex mutex;
  std::shared_ptr<const CustomAllocator> custom;
  bool caching = true;

  void apply() const { allocator::set_detour(allocator::Detour::kUncached, custom || !caching); }
};

Choice& choice() {
  static auto* instance = new Choice;
  return *instance;
}

}  // namespace

void* CustomAllocator::allocate(size_t size, int device, musaStream_t stream) const {
  void* pointer = allocate_(static_cast<ssize_t>(size), device, stream);
  if (!pointer) {
    return nullptr;
  }
  const bool ours = musart::is_device_pointer(pointer);
  const int lies_on = ours ? musart::device_of(pointer) : -1;
  if (lies_on == device && reinterpret_cast<uintptr_t>(pointer) % allocator::kMinBlock == 0) {
    return pointer;
  }
  free(pointer, size, device, stream);
  TORCH_CHECK(ours, "MUSA: the custom allocator returned ", pointer, ", which is no memory of a card (musaMalloc).");
  TORCH_CHECK(
      lies_on == device, "MUSA: the custom allocator was asked for memory of card ", device, " and returned ", pointer,
      ", which lies on card ", lies_on, ".");
  TORCH_CHECK(
      false, "MUSA: the custom allocator returned ", pointer, "; blocks must begin at multiples of ",
      allocator::kMinBlock, " bytes.");
}

void change_current_allocator(std::shared_ptr<const CustomAllocator> allocator) {
  const std::lock_guard<std::mutex> lock(choice().mutex);
  for (int device = 0; device < musaSimArenaInfo.cards; ++device) {
    TORCH_CHECK(
        !allocator::existing_pool(device),
        "MUSA: the current allocator can't be changed once memory was allocated (card ", device,
        " is in use). Call change_current_allocator before the first tensor, or use "
        "torch.musa.MemPool(allocator) with torch.musa.use_mem_pool.");
  }
  choice().custom = std::move(allocator);
  choice().apply();
}

std::shared_ptr<const CustomAllocator> current_custom_allocator() {
  const std::lock_guard<std::mutex> lock(choice().mutex);
  return choice().custom;
}

void enable_caching(bool on) {
  const std::lock_guard<std::mutex> lock(choice().mutex);
  choice().caching = on;
  choice().apply();
}

bool is_caching_enabled() {
  const std::lock_guard<std::mutex> lock(choice().mutex);
  return choice().caching;
}

}  // namespace musa
