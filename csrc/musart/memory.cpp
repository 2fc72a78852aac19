#include "musart/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "musart/accounting.h"
#include "musart/arena.h"
#include "musart/clock.h"
#include "musart/fault_plan.h"
#include "musart/host_memory.h"
#include "musart/pinned.h"
#include "musart/races.h"
#include "musart/runtime.h"
#include "musart/text.h"
#include "musart/virtual_memory.h"

namespace musart {
namespace {

constexpr size_t kGranule = 512;

uintptr_t address_of(const Card& card, size_t offset) {
  return musaSimArenaInfo.base + static_cast<size_t>(card.index) * musaSimArenaInfo.stride + offset;
}

// Calls `act(first_chunk, chunks)` for each run of chunks that `changes` (one call per chunk) says yes to.
template <class Changes, class Act>
bool for_runs(size_t offset, size_t extent, Changes changes, Act act) {
  const size_t last = (offset + extent - 1) / kChunk;
  size_t run = 0;
  bool good = true;
  for (size_t chunk = offset / kChunk; chunk <= last + 1; ++chunk) {
    if (chunk <= last && changes(chunk)) {
      ++run;
    } else if (run > 0) {
      good = act(chunk - run, run) && good;
      run = 0;
    }
  }
  return good;
}

// The last block to leave a chunk gives it back to the host. Under the card's lock.
void leave_chunks(Card& card, size_t offset, size_t extent) {
  for_runs(
      offset, extent, [&](size_t chunk) { return --card.chunk_users[chunk] == 0; },
      [&](size_t first, size_t count) {
        release(address_of(card, first * kChunk), count * kChunk);
        return true;
      });
}

bool enter_chunks(Card& card, size_t offset, const AddressSpace::Block& block) {
  return for_runs(
      offset, block.extent, [&](size_t chunk) { return card.chunk_users[chunk]++ == 0; },
      [&](size_t first, size_t count) {
        const uintptr_t address = address_of(card, first * kChunk);
        return block.fd >= 0 ? commit_shared(address, count * kChunk, block.fd) : commit(address, count * kChunk);
      });
}

musaError_t fail_full(const Card& card, size_t size, const accounting::Usage& usage) {
  const size_t used = usage.own + usage.others;
  const size_t left = card.figures.memory > used ? card.figures.memory - used : 0;
  return fail(
      musaErrorMemoryAllocation,
      "card musa:%d (%s) is out of memory: %s asked for, %s of %s free; this process holds %s, %d other process%s "
      "%s",
      card.index, card.properties.name, format_bytes(size).c_str(), format_bytes(left).c_str(),
      format_bytes(card.figures.memory).c_str(), format_bytes(usage.own).c_str(), usage.processes,
      usage.processes == 1 ? "" : "es", format_bytes(usage.others).c_str());
}

musaError_t fail_commit(const Card& card, size_t size, int error) {
  return fail(
      musaErrorSimHostMemory,
      "the host is out of memory, not card musa:%d: it refused to map %s (%s); vm.overcommit_memory=2, "
      "vm.max_map_count or a full tmpfs can be the reason",
      card.index, format_bytes(size).c_str(), strerror(error));
}

musaError_t place(Card& card, const AddressSpace::Block& block, size_t alignment, void** pointer) {
  const std::lock_guard<std::mutex> lock(card.memory_mutex);
  const size_t offset = card.addresses->allocate(block, alignment);
  if (offset == AddressSpace::kNone) {
    return fail(
        musaErrorMemoryAllocation,
        "card musa:%d has no run of %s left among its addresses (fragmented, or shrunk by a limit on address space)",
        card.index, format_bytes(block.extent).c_str());
  }
  if (!enter_chunks(card, offset, block)) {
    const int error = errno;
    AddressSpace::Block gone;
    leave_chunks(card, offset, block.extent);
    card.addresses->free(offset, &gone);
    return fail_commit(card, block.extent, error);
  }
  *pointer = reinterpret_cast<void*>(address_of(card, offset));
  return musaSuccess;
}

musaError_t allocate(void** pointer, size_t size, bool shareable, int* fd) {
  Card& card = current_card();
  *pointer = nullptr;
  if (size == 0) return musaSuccess;
  if (faults::possible()) MUSART_TRY(faults::before_segment(card.index, size));
  accounting::Usage usage;
  if (size > card.figures.memory) {
    usage = accounting::usage(card.physical);
    return fail_full(card, size, usage);
  }
  size = (size + kGranule - 1) / kGranule * kGranule;
  AddressSpace::Block block{size, size, -1};
  if (shareable) block.extent = (size + kChunk - 1) / kChunk * kChunk;  // shares no chunk with private memory

  if (!accounting::acquire(card.physical, size, card.figures.memory, &usage)) return fail_full(card, size, usage);
  musaError_t status = check_host_memory(size, card.index);
  if (status == musaSuccess && shareable) {
    block.fd = memfd_create("torch_musa_sim", MFD_CLOEXEC);
    if (block.fd < 0 || ftruncate(block.fd, static_cast<off_t>(block.extent)) != 0) {
      status = fail_commit(card, size, errno);
    }
  }
  if (status == musaSuccess) status = place(card, block, block.extent >= kChunk ? kChunk : kGranule, pointer);
  if (status != musaSuccess) {
    accounting::release(card.physical, size);
    if (block.fd >= 0) close(block.fd);
    return status;
  }
  if (shareable) *fd = block.fd;
  advance_host(card.figures.alloc_ns);
  return musaSuccess;
}

}  // namespace

musaError_t check_device_range(const void* pointer, size_t bytes, const char* call, const char* role) {
  Card& card = *cards[device_of(pointer)];
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - address_of(card, 0);
  AddressSpace::Block block;
  const std::lock_guard<std::mutex> lock(card.memory_mutex);
  const size_t start = card.addresses->find(offset, &block);
  if (start == AddressSpace::kNone) {
    return fail(
        musaErrorInvalidValue, "%s: %s %p is an address of card musa:%d that isn't allocated", call, role, pointer,
        card.index);
  }
  if (block.reserved) {
    for (size_t chunk = offset / kChunk; chunk * kChunk < offset + bytes; ++chunk) {
      if (card.chunk_users[chunk] > 0) continue;
      return fail(
          musaErrorInvalidValue, "%s: %s %p + %zu bytes reaches addresses of card musa:%d without memory behind them",
          call, role, pointer, bytes, card.index);
    }
  }
  if (bytes > block.extent - (offset - start)) {
    return fail(
        musaErrorInvalidValue, "%s: %s %p + %zu bytes passes the end of its allocation of %zu bytes on card musa:%d",
        call, role, pointer, bytes, block.size, card.index);
  }
  return musaSuccess;
}

namespace {

// The reservation around [pointer, pointer + size), with its card locked by the caller.
musaError_t check_reserved(Card& card, size_t offset, size_t size, const void* pointer, const char* call) {
  if (offset % kChunk != 0 || size % kChunk != 0 || size == 0) {
    return fail(musaErrorInvalidValue, "%s: %p + %zu bytes is no multiple of 2 MiB", call, pointer, size);
  }
  AddressSpace::Block block;
  const size_t start = card.addresses->find(offset, &block);
  if (start == AddressSpace::kNone || !block.reserved || size > block.extent - (offset - start)) {
    return fail(musaErrorInvalidValue, "%s: %p + %zu bytes was not reserved", call, pointer, size);
  }
  return musaSuccess;
}

// Are all chunks of the range with memory (or all without)?
bool all_mapped(const Card& card, size_t offset, size_t size, bool mapped) {
  for (size_t chunk = offset / kChunk; chunk < (offset + size) / kChunk; ++chunk) {
    if ((card.chunk_users[chunk] > 0) != mapped) return false;
  }
  return true;
}

musaError_t map_memory(Card& card, size_t offset, size_t size, const void* pointer) {
  accounting::Usage usage;
  if (!accounting::acquire(card.physical, size, card.figures.memory, &usage)) return fail_full(card, size, usage);
  musaError_t status = check_host_memory(size, card.index);
  if (status == musaSuccess) {
    const std::lock_guard<std::mutex> lock(card.memory_mutex);
    status = check_reserved(card, offset, size, pointer, "musaSimMapMemory");
    if (status == musaSuccess && !all_mapped(card, offset, size, false)) {
      status = fail(musaErrorInvalidValue, "musaSimMapMemory: %p + %zu bytes has memory already", pointer, size);
    }
    if (status == musaSuccess && !enter_chunks(card, offset, {size, size, -1})) {
      const int error = errno;
      leave_chunks(card, offset, size);
      status = fail_commit(card, size, error);
    }
  }
  if (status != musaSuccess) {
    accounting::release(card.physical, size);
    return status;
  }
  advance_host(card.figures.alloc_ns);
  return musaSuccess;
}

}  // namespace

bool find_allocation_now(uintptr_t address, uintptr_t* start, size_t* size) {
  Card& card = *cards[device_of(reinterpret_cast<void*>(address))];
  if (!card.memory_mutex.try_lock()) return false;
  AddressSpace::Block block;
  const size_t offset = card.addresses->find(address - address_of(card, 0), &block);
  card.memory_mutex.unlock();
  if (offset == AddressSpace::kNone) return false;
  *start = address_of(card, offset);
  *size = block.size;
  return true;
}

}  // namespace musart

using musart::Card;
using musart::fail;

extern "C" {

musaError_t musaMalloc(void** pointer, size_t size) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr) return fail(musaErrorInvalidValue, "musaMalloc: pointer is NULL");
  return musart::allocate(pointer, size, false, nullptr);
}

musaError_t musaSimMallocShareable(void** pointer, size_t size, int* fd) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr || fd == nullptr) {
    return fail(musaErrorInvalidValue, "musaSimMallocShareable: pointer or fd is NULL");
  }
  *fd = -1;
  return musart::allocate(pointer, size, true, fd);
}

musaError_t musaFree(void* pointer) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr) return musaSuccess;
  if (!musart::is_device_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaFree: %p is no device address", pointer);
  }
  Card& card = *musart::cards[musart::device_of(pointer)];
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - musart::address_of(card, 0);
  musart::AddressSpace::Block block;
  {
    const std::lock_guard<std::mutex> lock(card.memory_mutex);
    if (card.addresses->find(offset, &block) == offset && block.reserved) {
      return fail(musaErrorInvalidValue, "musaFree: %p was reserved, not allocated; musaSimFreeAddresses", pointer);
    }
    if (!card.addresses->free(offset, &block)) {
      return fail(musaErrorInvalidValue, "musaFree: no allocation begins at %p (freed twice?)", pointer);
    }
    musart::leave_chunks(card, offset, block.extent);
    if (musart::watches_races()) musart::races::forget_memory(pointer, block.extent);
  }
  if (block.fd >= 0) close(block.fd);
  musart::accounting::release(card.physical, block.size);
  musart::advance_host(card.figures.alloc_ns);
  return musaSuccess;
}

musaError_t musaSimReserveAddresses(void** pointer, size_t* size, size_t least) {
  MUSART_TRY(musart::ready());
  if (pointer == nullptr || size == nullptr) {
    return fail(musaErrorInvalidValue, "musaSimReserveAddresses: pointer or size is NULL");
  }
  Card& card = musart::current_card();
  const std::lock_guard<std::mutex> lock(card.memory_mutex);
  const size_t most = card.addresses->largest_hole() / 2 / musart::kChunk * musart::kChunk;
  *size = std::min(*size, most);
  const size_t offset = *size < least || *size == 0 ? musart::AddressSpace::kNone
                                                    : card.addresses->allocate({0, *size, -1, true}, musart::kChunk);
  if (offset == musart::AddressSpace::kNone) {
    return fail(musaErrorMemoryAllocation, "card musa:%d has too few addresses left in one piece", card.index);
  }
  *pointer = reinterpret_cast<void*>(musart::address_of(card, offset));
  return musaSuccess;
}

musaError_t musaSimMapMemory(void* pointer, size_t size) {
  MUSART_TRY(musart::ready());
  if (!musart::is_device_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaSimMapMemory: %p is no device address", pointer);
  }
  Card& card = *musart::cards[musart::device_of(pointer)];
  return musart::map_memory(card, reinterpret_cast<uintptr_t>(pointer) - musart::address_of(card, 0), size, pointer);
}

musaError_t musaSimUnmapMemory(void* pointer, size_t size) {
  MUSART_TRY(musart::ready());
  if (!musart::is_device_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaSimUnmapMemory: %p is no device address", pointer);
  }
  Card& card = *musart::cards[musart::device_of(pointer)];
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - musart::address_of(card, 0);
  {
    const std::lock_guard<std::mutex> lock(card.memory_mutex);
    MUSART_TRY(musart::check_reserved(card, offset, size, pointer, "musaSimUnmapMemory"));
    if (!musart::all_mapped(card, offset, size, true)) {
      return fail(musaErrorInvalidValue, "musaSimUnmapMemory: %p + %zu bytes has no memory", pointer, size);
    }
    if (musart::watches_races()) musart::races::forget_memory(pointer, size);
    musart::leave_chunks(card, offset, size);
  }
  musart::accounting::release(card.physical, size);
  musart::advance_host(card.figures.alloc_ns);
  return musaSuccess;
}

musaError_t musaSimFreeAddresses(void* pointer) {
  MUSART_TRY(musart::ready());
  if (!musart::is_device_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaSimFreeAddresses: %p is no device address", pointer);
  }
  Card& card = *musart::cards[musart::device_of(pointer)];
  const size_t offset = reinterpret_cast<uintptr_t>(pointer) - musart::address_of(card, 0);
  const std::lock_guard<std::mutex> lock(card.memory_mutex);
  musart::AddressSpace::Block block;
  if (card.addresses->find(offset, &block) != offset || !block.reserved) {
    return fail(musaErrorInvalidValue, "musaSimFreeAddresses: no reservation begins at %p", pointer);
  }
  if (!musart::all_mapped(card, offset, block.extent, false)) {
    return fail(musaErrorInvalidValue, "musaSimFreeAddresses: memory is still behind %p", pointer);
  }
  card.addresses->free(offset, &block);
  return musaSuccess;
}

musaError_t musaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  MUSART_TRY(musart::ready());
  const Card& card = musart::current_card();
  const musart::accounting::Usage usage = musart::accounting::usage(card.physical);
  const size_t used = usage.own + usage.others;
  if (free_bytes != nullptr) *free_bytes = card.figures.memory > used ? card.figures.memory - used : 0;
  if (total_bytes != nullptr) *total_bytes = card.figures.memory;
  return musaSuccess;
}

musaError_t musaPointerGetAttributes(musaPointerAttributes* attributes, const void* pointer) {
  MUSART_TRY(musart::ready());
  if (attributes == nullptr) return fail(musaErrorInvalidValue, "musaPointerGetAttributes: attributes is NULL");
  *attributes = {musaMemoryTypeUnregistered, -1, nullptr, nullptr};
  void* same = const_cast<void*>(pointer);
  if (musart::is_device_pointer(pointer)) {
    MUSART_TRY(musart::check_device_range(pointer, 0, "musaPointerGetAttributes", "pointer"));
    *attributes = {musaMemoryTypeDevice, musart::device_of(pointer), same, nullptr};
  } else if (musart::is_pinned(pointer)) {
    *attributes = {musaMemoryTypeHost, -1, nullptr, same};
  }
  return musaSuccess;
}

}  // extern "C"
