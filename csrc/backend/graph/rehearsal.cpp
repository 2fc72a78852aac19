#include "backend/graph/rehearsal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/like.h"
#include "backend/generator.h"
#include "backend/graph/interception.h"
#include "backend/graph/shadow.h"
#include "backend/runtime/device.h"
#include "backend/storage.h"

namespace musa::graph {

namespace {

// Below this the heap's zeroed memory is cheaper than a mapping of its own.
constexpr size_t kMapped = size_t{256} << 10;
// From here on the CPU kernel's work would be felt, and memory without contents is asked first.
constexpr size_t kLarge = size_t{4} << 20;

struct Mapping {
  void* data;
  size_t nbytes;
};

// Zeros that cost memory only where they are written.
c10::DataPtr zeros(size_t nbytes) {
  if (nbytes == 0) {
    return {nullptr, c10::Device(c10::kCPU)};
  }
  if (nbytes < kMapped) {
    void* data = std::calloc(1, nbytes);
    TORCH_CHECK(data != nullptr, "out of host memory while a graph is captured (", nbytes, " bytes)");
    return {data, data, [](void* memory) { std::free(memory); }, c10::Device(c10::kCPU)};
  }
  void* data = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(data != MAP_FAILED, "no address space of ", nbytes, " bytes while a graph is captured");
  const auto unmap = [](void* context) {
    const auto* mapping = static_cast<Mapping*>(context);
    munmap(mapping->data, mapping->nbytes);
    delete mapping;
  };
  return {data, new Mapping{data, nbytes}, unmap, c10::Device(c10::kCPU)};
}

c10::DispatchKey key_of(Rehearsal::Stage stage) {
  switch (stage) {
    case Rehearsal::Stage::kMeta:
      return c10::DispatchKey::Meta;
    case Rehearsal::Stage::kHost:
      return c10::DispatchKey::CPU;
    case Rehearsal::Stage::kCard:
      break;
  }
  return c10::DispatchKey::PrivateUse1;
}

c10::Device device_of(Rehearsal::Stage stage, c10::Device card) {
  switch (stage) {
    case Rehearsal::Stage::kMeta:
      return c10::Device(c10::kMeta);
    case Rehearsal::Stage::kHost:
      return c10::Device(c10::kCPU);
    case Rehearsal::Stage::kCard:
      break;
  }
  return card;
}

// A random operator draws nothing while it is captured.
class KeepGenerator {
 public:
  explicit KeepGenerator(c10::DeviceIndex card)
      : generator_(default_generator(card)), offset_(generator()->position().offset) {}
  ~KeepGenerator() { generator()->move_to(offset_); }
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  MusaGenerator* generator() const { return generator_.get<MusaGenerator>(); }

  at::Generator generator_;
  uint64_t offset_;
};

size_t bytes_of(const Plan& plan, const torch::jit::Stack& stack) {
  size_t bytes = 0;
  const size_t first = stack.size() - plan.arg_count;
  for (const ArgPlan& argument : plan.args) {
    (void)map_tensors(stack[first + argument.index], argument.kind, [&](const at::Tensor& tensor) {
      bytes += static_cast<size_t>(tensor.numel()) * tensor.element_size();
      return tensor;
    });
  }
  return bytes;
}

}  // namespace

c10::Storage Rehearsal::stand_in(const c10::Storage& storage) {
  c10::Storage& made = storages_[storage.unsafeGetStorageImpl()];
  if (made) {
    return made;
  }
  const size_t nbytes = storage.nbytes();
  switch (stage_) {
    case Stage::kMeta:
      made = at::detail::empty_meta({static_cast<int64_t>(nbytes)}, at::kByte).storage();
      break;
    case Stage::kHost:
      made = c10::Storage(
          c10::Storage::use_byte_size_t(), nbytes, zeros(nbytes), c10::GetCPUAllocator(), /*resizable=*/true);
      break;
    case Stage::kCard: {
      auto on_card = c10::make_intrusive<MusaStorage>(nbytes, card_);
      if (nbytes > 0) {
        std::memset(on_card->twin()->mutable_data(), 0, nbytes);
      }
      made = c10::Storage(std::move(on_card));
      break;
    }
  }
  return made;
}

at::Tensor Rehearsal::stand_in(const at::Tensor& tensor) {
  if (tensor.device().type() != kMusa) {
    return tensor;  // a number
  }
  for (const StandIn& known : stand_ins_) {
    if (known.original.is_same(tensor)) {
      return known.tensor;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.has_storage() && tensor.layout() == c10::kStrided, "A tensor of layout ", tensor.layout(),
      " can't be used while a graph is captured");
  auto made = like(tensor.unsafeGetTensorImpl(), stand_in(tensor.storage()), key_of(stage_), device_of(stage_, card_));
  stand_ins_.push_back({tensor, at::Tensor(std::move(made))});
  return stand_ins_.back().tensor;
}

void Rehearsal::run(const c10::OperatorHandle& op, const Plan& plan, const torch::jit::Stack& stack) {
  const BelowAutograd state;
  const WithoutInterception plainly(kCaptureKey);
  std::optional<OnShadow> shadow;
  std::optional<KeepGenerator> generator;
  if (stage_ == Stage::kCard) {
    shadow.emplace(card_.index());
    generator.emplace(card_.index());
  }
  torch::jit::Stack work(stack.end() - static_cast<std::ptrdiff_t>(plan.arg_count), stack.end());
  for (const ArgPlan& argument : plan.args) {
    c10::IValue& value = work[argument.index];
    if (argument.kind == ArgKind::kDevice) {
      if (value.isDevice()) {
        value = device_of(stage_, card_);
      }
    } else if (argument.kind == ArgKind::kGenerator) {
      if (stage_ == Stage::kMeta) {
        value = c10::IValue();
      } else if (stage_ == Stage::kHost) {
        value = at::make_generator<at::CPUGeneratorImpl>(0);
      } else if (value.isGenerator() && value.toGenerator().defined()) {
        value = value.toGenerator().clone();
      }
    } else {
      value = map_tensors(value, argument.kind, [this](const at::Tensor& tensor) { return stand_in(tensor); });
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(key_of(stage_)), &work);
  results_.assign(work.begin(), work.end());
}

at::Tensor Rehearsal::original(const at::Tensor& result) const {
  for (const StandIn& known : stand_ins_) {
    if (known.tensor.is_same(result)) {
      return known.original;
    }
  }
  return result.defined() && result.device() == device_of(stage_, card_) ? at::Tensor() : result;
}

c10::Storage Rehearsal::original(const c10::Storage& storage) const {
  for (const auto& [impl, made] : storages_) {
    if (made.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      for (const StandIn& known : stand_ins_) {
        if (known.original.storage().unsafeGetStorageImpl() == impl) {
          return known.original.storage();
        }
      }
    }
  }
  return {};
}

Rehearsal rehearse(
    const c10::OperatorHandle& op, const OperatorClass& kind, c10::Device card, const torch::jit::Stack& stack) {
  using Stage = Rehearsal::Stage;
  std::vector<Stage> stages;
  // The kernel that will run tells its strides best; ours may be written for the card alone.
  const bool light = kind.bridged && bytes_of(kind.plan, stack) < kLarge;
  if (kind.has_meta_kernel && !light) {
    stages.push_back(Stage::kMeta);
  }
  if (kind.has_cpu_kernel) {
    stages.push_back(Stage::kHost);
  }
  if (kind.has_meta_kernel && light) {
    stages.push_back(Stage::kMeta);
  }
  if (!kind.bridged) {
    stages.push_back(Stage::kCard);
  }
  std::exception_ptr first;
  for (const Stage stage : stages) {
    try {
      Rehearsal rehearsal(stage, card);
      rehearsal.run(op, kind.plan, stack);
      return rehearsal;
    } catch (const std::exception&) {
      // Zeros may be no valid input (a division, a probability), or the stage lacks this case.
      if (first == nullptr || stage == Stage::kCard) {
        first = std::current_exception();
      }
    }
  }
  std::rethrow_exception(first);
}

}  // namespace musa::graph
