#include "backend/bridge/compiled.h"

#include <ATen/ops/clone.h>

#include <algorithm>
#include <cstring>

#include "backend/bridge/wrap.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"

namespace musa {
namespace {

constexpr const char* kOp = "compiled code";

double bytes_of(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
}

bool lies_on(const void* alias, c10::Device card) {
  return musart::is_alias_pointer(alias) && musart::device_of(musart::to_device(alias)) == card.index();
}

/// What `later` is given from now on waits for what `earlier` has been given.
void order(musaStream_t earlier, musaStream_t later) {
  musaEvent_t event = nullptr;
  MUSA_CHECK(musaEventCreateWithFlags(&event, musaEventDisableTiming));
  const musaError_t recorded = musaEventRecord(event, earlier);
  const musaError_t waits = recorded == musaSuccess ? musaStreamWaitEvent(later, event, 0) : recorded;
  (void)musaEventDestroy(event);
  MUSA_CHECK(waits);
}

/// A copy of the storage in the memory of another card.
c10::Storage on_card(const c10::Storage& cpu, c10::Device card) {
  auto moved = c10::make_intrusive<MusaStorage>(cpu.nbytes(), card);
  std::memcpy(moved->twin()->mutable_data(), cpu.data(), cpu.nbytes());
  return c10::Storage(std::move(moved));
}

}  // namespace

CompiledRun::CompiledRun(const CompiledFacts& facts) : facts_(facts) {
  launch_.begin(facts.device.index());
  memory_.emplace(facts.device.index(), launch_.stream());
  state_.emplace();
}

CompiledRun::~CompiledRun() = default;

at::Tensor CompiledRun::show(const at::Tensor& argument, bool written) {
  if (!argument.defined() || argument.device().type() != kMusa) {
    return argument;
  }
  c10::TensorImpl* impl = argument.unsafeGetTensorImpl();
  auto shown = musa::show(impl, kOp);
  check_memory(impl, *shown, kOp);
  bytes_ += bytes_of(argument) * (written ? 2 : 1);
  join(argument.device());
  if (launch_.is_watched()) {
    launch_.note_access(*impl, written, facts_.counters->name.c_str());
  }
  if (impl->has_storage()) {
    const void* memory = shown->unsafe_storage().data();
    arguments_.push_back(
        Argument{
            decltype(Argument::original)(argument.getIntrusivePtr()), decltype(Argument::shown)(shown),
            impl->unsafe_storage().getWeakStorageImpl(), memory});
  }
  return at::Tensor(std::move(shown));
}

void CompiledRun::join(c10::Device device) {
  if (C10_LIKELY(device == facts_.device)) {
    return;
  }
  const musaStream_t stream = current_native_stream(device.index());
  if (std::find(joined_.begin(), joined_.end(), stream) == joined_.end()) {
    joined_.push_back(stream);
    order(stream, launch_.stream());
  }
}

void CompiledRun::finish() {
  state_.reset();
  memory_.reset();
}

c10::Storage CompiledRun::storage_of(const c10::Storage& cpu, c10::Device device) {
  const void* memory = cpu.data();
  for (const Argument& argument : arguments_) {
    if (memory != nullptr && argument.memory == memory) {
      if (auto storage = argument.storage.lock(); storage && storage->device() == device) {
        return c10::Storage(std::move(storage));
      }
    }
  }
  for (const auto& [known, card] : fresh_) {
    if (known == cpu.unsafeGetStorageImpl() && card.device() == device) {
      return card;
    }
  }
  c10::Storage card = memory == nullptr || lies_on(memory, device) || !musart::is_alias_pointer(memory)
      ? take_storage(cpu, device, facts_.counters)
      : on_card(cpu, device);
  fresh_.emplace_back(cpu.unsafeGetStorageImpl(), card);
  return card;
}

at::Tensor CompiledRun::take(const at::Tensor& result, c10::Device device) {
  if (!result.defined() || !result.is_cpu()) {
    return result;
  }
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (device.is_cpu()) {
    return impl->has_storage() && musart::is_alias_pointer(impl->unsafe_storage().data()) ? at::clone(result) : result;
  }
  for (const Argument& argument : arguments_) {
    if (argument.shown._unsafe_get_target() == impl) {
      auto original = argument.original.lock();
      if (original && original->device() == device) {
        return at::Tensor(std::move(original));
      }
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl->has_storage() && impl->layout() == c10::kStrided, "A result of layout ", impl->layout(),
      " is not supported on musa. Run this code without torch.compile.");
  bytes_ += bytes_of(result);
  join(device);
  at::Tensor taken(take_on(impl, storage_of(impl->storage(), device)));
  if (launch_.is_watched()) {
    launch_.note_access(*taken.unsafeGetTensorImpl(), /*written=*/true, facts_.counters->name.c_str());
  }
  return taken;
}

void CompiledRun::launch(double flops) {
  MUSA_CHECK(launch_.finish_kernel(*facts_.counters, {.flops = flops, .bytes = bytes_, .dtype = facts_.dtype}));
  for (const musaStream_t stream : joined_) {
    order(launch_.stream(), stream);
  }
  if (facts_.synchronizes) {
    MUSA_CHECK(musaStreamSynchronize(launch_.stream()));
  }
}

}  // namespace musa
