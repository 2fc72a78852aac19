// An allocator of the program's own: two functions of a shared library that stand for musaMalloc and musaFree.
#pragma once

#include <sys/types.h>

#include <memory>

#include "musart/musart_sim.h"

namespace musa {

class CustomAllocator {
 public:
  using Allocate = void*(ssize_t size, int device, musaStream_t stream);
  using Free = void(void* pointer, ssize_t size, int device, musaStream_t stream);

  CustomAllocator(Allocate* allocate, Free* free) : allocate_(allocate), free_(free) {}

  /// Device memory at a multiple of 512 bytes on `device`, which is the current card; nullptr when there is none left.
  /// Throws, giving it back, when the function returned something else.
  void* allocate(size_t size, int device, musaStream_t stream) const;
  void free(void* pointer, size_t size, int device, musaStream_t stream) const {
    free_(pointer, static_cast<ssize_t>(size), device, stream);
  }

 private:
  Allocate* allocate_;
  Free* free_;
};

/// Every allocation from now on goes to `allocator`. Throws when memory was already allocated.
void change_current_allocator(std::shared_ptr<const CustomAllocator> allocator);
/// nullptr while the caching allocator is the current one.
std::shared_ptr<const CustomAllocator> current_custom_allocator();

/// Off: each block is a musaMalloc and its end a musaFree. What is cached stays so.
void enable_caching(bool on);
bool is_caching_enabled();

}  // namespace musa
