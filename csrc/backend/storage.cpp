#include "backend/storage.h"

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <typeinfo>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/host_allocator.h"
#include "backend/runtime/stream.h"
#include "backend/unified_host_memory.h"
#include "musart/musart_races.h"

namespace musa {

namespace {

// initial-exec: one instruction instead of a call on the path of every CPU allocation of the process.
#define MUSA_FAST_TLS thread_local __attribute__((tls_model("initial-exec")))
MUSA_FAST_TLS musaStream_t scope_stream = nullptr;  // nullptr: CPU allocations stay on the host
MUSA_FAST_TLS c10::DeviceIndex scope_device = 0;

c10::Allocator* host = nullptr;  // the CPU allocator in force before ours

std::atomic<bool> unified{false};  // host tensors are page-locked
std::atomic<bool> ever_unified{false};

void release(void* pointer) {
  if (musart::is_alias_pointer(pointer)) {
    free_block(musart::to_device(pointer));
  } else if (C10_UNLIKELY(ever_unified.load(std::memory_order_relaxed)) && is_pinned(pointer)) {
    musaFreeHost(pointer);
  } else if (pointer != nullptr) {
    host->raw_deallocate(pointer);
  }
}

c10::DataPtr allocate_unified(size_t nbytes) {
  void* pointer = nullptr;
  if (nbytes > 0) {
    ensure_initialized();
    MUSA_CHECK(musaMallocHost(&pointer, nbytes));
  }
  return {pointer, pointer, &release, c10::Device(c10::kCPU)};
}

c10::DataPtr allocate_alias(size_t nbytes, c10::DeviceIndex device, musaStream_t stream) {
  void* block = allocate_block(nbytes, device, stream);
  void* alias = block == nullptr ? nullptr : musart::to_alias(block);
  return {alias, alias, &release, c10::Device(c10::kCPU)};
}

// Stands in front of torch's CPU allocator, so that a CPU kernel's results and workspaces come from the card while
// the bridge runs it.
class SwitchingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    if (C10_LIKELY(scope_stream == nullptr)) {
      return C10_UNLIKELY(unified.load(std::memory_order_relaxed)) ? allocate_unified(nbytes) : host->allocate(nbytes);
    }
    return allocate_alias(nbytes, scope_device, scope_stream);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};

SwitchingAllocator& switching_allocator() {
  static auto* allocator = new SwitchingAllocator();
  return *allocator;
}

void* device_address(const c10::StorageImpl& twin) {
  const void* alias = twin.data();
  return alias == nullptr ? nullptr : musart::to_device(alias);
}

c10::intrusive_ptr<c10::StorageImpl> fresh_twin(size_t nbytes, c10::DeviceIndex device) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes),
      allocate_alias(nbytes, device, current_native_stream(device)), &switching_allocator(), /*resizable=*/true);
}

c10::intrusive_ptr<c10::StorageImpl> create_storage(
    c10::StorageImpl::use_byte_size_t /*tag*/, c10::SymInt size_bytes, c10::DataPtr data, c10::Allocator* allocator,
    bool resizable) {
  if (data.get() == nullptr && !size_bytes.is_heap_allocated()) {
    // torch.UntypedStorage(n, device="musa") leaves the allocation to us; its device is the current one.
    const c10::DeviceIndex device =
        data.device().type() == kMusa ? resolve_device(data.device().index()) : current_device();
    return c10::make_intrusive<MusaStorage>(
        static_cast<size_t>(size_bytes.as_int_unchecked()), c10::Device(kMusa, device));
  }
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), std::move(size_bytes), std::move(data), allocator, resizable);
}

}  // namespace

MusaStorage::MusaStorage(size_t nbytes, c10::Device device) : MusaStorage(fresh_twin(nbytes, device.index()), device) {}

MusaStorage::MusaStorage(c10::intrusive_ptr<c10::StorageImpl> twin, c10::Device device)
    : c10::StorageImpl(
          use_byte_size_t(), static_cast<int64_t>(twin->nbytes()), c10::DataPtr(device_address(*twin), device),
          device_allocator(), /*resizable=*/true),
      twin_(std::move(twin)) {}

c10::StorageImpl* MusaStorage::twin() const {
  if (C10_LIKELY(twin_ && data() == device_address(*twin_) && nbytes() == twin_->nbytes())) {
    return twin_.get();
  }
  return nullptr;
}

void MusaStorage::adopt_twin() {
  set_data_ptr_noswap(c10::DataPtr(device_address(*twin_), device()));
  set_nbytes(twin_->nbytes());
}

void MusaStorage::release_resources() {
  c10::StorageImpl::release_resources();
  twin_.reset();
}

MusaStorage* as_musa_storage(c10::StorageImpl* storage) {
  return typeid(*storage) == typeid(MusaStorage) ? static_cast<MusaStorage*>(storage) : nullptr;
}

c10::intrusive_ptr<c10::StorageImpl> twin_of(c10::StorageImpl* storage) {
  if (MusaStorage* ours = as_musa_storage(storage)) {
    if (c10::StorageImpl* twin = ours->twin()) {
      return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(twin);
    }
  }
  const void* address = storage->data();
  TORCH_CHECK(
      address == nullptr || musart::is_device_pointer(address), "A storage on ", storage->device(), " points to ",
      address,
      ", which is not memory of a simulated card. Copy the data with .to(\"musa\") "
      "instead of wrapping a host pointer.");
  auto* keep = new c10::intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  c10::DataPtr data(
      address == nullptr ? nullptr : musart::to_alias(address), keep,
      [](void* held) { delete static_cast<c10::intrusive_ptr<c10::StorageImpl>*>(held); }, c10::Device(c10::kCPU));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage->nbytes()), std::move(data),
      &switching_allocator(), /*resizable=*/true);
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const c10::Device device = impl->device();
  const musaStream_t stream = current_native_stream(device.index());
  void* block = allocate_block(nbytes, device.index(), stream);
  const size_t common = std::min(nbytes, impl->nbytes());
  if (common > 0) {
    MUSA_CHECK(musaSimAccess(stream, impl->data(), common, 0, "UntypedStorage.resize_"));
    MUSA_CHECK(musaSimAccess(stream, block, common, 1, "UntypedStorage.resize_"));
    std::memcpy(musart::to_alias(block), musart::to_alias(impl->data()), common);
  }
  MusaStorage* ours = as_musa_storage(impl);
  if (ours != nullptr && ours->twin() != nullptr) {
    c10::StorageImpl* twin = ours->twin();
    void* alias = block == nullptr ? nullptr : musart::to_alias(block);
    twin->set_data_ptr_noswap(c10::DataPtr(alias, alias, &release, c10::Device(c10::kCPU)));
    twin->set_nbytes(nbytes);
    ours->adopt_twin();
  } else {
    impl->set_data_ptr_noswap(c10::DataPtr(block, block, device_allocator()->raw_deleter(), device));
    impl->set_nbytes(nbytes);
  }
}

void set_unified_host_memory(bool on) {
  if (on) {
    at::globalContext().lazyInitDevice(kMusa);  // else torch takes no memory for pinned
    ever_unified.store(true);
  }
  unified.store(on);
}

bool is_unified_host_memory() { return unified.load(); }

AllocateOnCard::AllocateOnCard(c10::DeviceIndex device, musaStream_t stream)
    : outer_stream_(scope_stream), outer_device_(scope_device) {
  scope_stream = stream;
  scope_device = device;
}

AllocateOnCard::~AllocateOnCard() {
  scope_stream = outer_stream_;
  scope_device = outer_device_;
}

void register_storage() {
  static const bool once = [] {
    host = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&switching_allocator(), /*priority=*/255);
    c10::SetStorageImplCreate(kMusa, &create_storage);
    return true;
  }();
  (void)once;
}

}  // namespace musa
