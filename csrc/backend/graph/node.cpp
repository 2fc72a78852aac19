#include "backend/graph/node.h"

#include <ATen/CPUGeneratorImpl.h>

#include "backend/bridge/accesses.h"
#include "backend/bridge/host_kernel.h"
#include "backend/bridge/host_view.h"
#include "backend/generator.h"
#include "backend/graph/shadow.h"
#include "backend/ops/deferred_copy.h"
#include "backend/runtime/check.h"
#include "backend/runtime/one_thread.h"
#include "backend/storage.h"

namespace musa::graph {

namespace {

const at::Tensor& result_of(const torch::jit::Stack& stack, const Node::Result& result, at::Tensor& element) {
  const c10::IValue& value = stack[result.index];
  if (!result.element.has_value()) {
    return value.toTensor();
  }
  element = value.toTensorList().get(*result.element);
  return element;
}

// Learns which of the kernel's allocations become its results.
void learn(const torch::jit::Stack& stack, Node& node, const PlannedMemory& memory) {
  at::Tensor element;
  for (const Node::Result& result : node.results) {
    const c10::TensorImpl* made = result_of(stack, result, element).unsafeGetTensorImpl();
    const void* promised = result.promised.storage().data();
    for (PlannedBlock& block : node.blocks) {
      if (made->has_storage() && (block.alias == promised || musart::to_device(block.alias) == promised)) {
        const void* data = made->unsafe_storage().data();
        block.ordinal = memory.ordinal_of(musart::is_device_pointer(data) ? musart::to_alias(data) : data);
      }
    }
  }
  node.placed = true;
}

// The kernel may have put a result elsewhere: in the first run, or because it laid it out in another way.
void put_in_place(const torch::jit::Stack& stack, Node& node, const PlannedMemory& memory) {
  if (C10_UNLIKELY(!node.placed)) {
    learn(stack, node, memory);
  }
  at::Tensor element;
  std::vector<std::pair<at::Tensor, at::Tensor>> moves;
  for (const Node::Result& result : node.results) {
    const at::Tensor& made = result_of(stack, result, element);
    const c10::TensorImpl* promised = result.promised.unsafeGetTensorImpl();
    const c10::TensorImpl* impl = made.unsafeGetTensorImpl();
    if (C10_UNLIKELY(
            !impl->has_storage() || impl->unsafe_storage().data() != promised->unsafe_storage().data() ||
            impl->storage_offset() != promised->storage_offset() || impl->strides() != promised->strides())) {
      // Aside first: it may lie in memory promised to another result, or to itself in another layout.
      moves.emplace_back(host_view(result.promised), host_view(made).clone());
    }
  }
  for (const auto& [to, from] : moves) {
    to.copy_(from);
  }
}

// Tells whoever watches the device of a node that runs a CPU kernel, as the bridge does of an operator.
class Watched {
 public:
  Watched(const Node& node, musaStream_t stream, int64_t start_ns) : node_(node), shadow_(node.card, stream, start_ns) {
    launch_.begin(node.card);
    if (node.route.has_value()) {
      launch_.check_copy(node.name.c_str(), *node.route);
    } else {
      launch_.check(node.name.c_str());
    }
    for (const Node::Access& access : node.accesses) {
      launch_.note_access(*access.tensor.unsafeGetTensorImpl(), access.written, node.name.c_str());
    }
  }

  void finish() {
    MUSA_CHECK(
        node_.route.has_value()
            ? launch_.finish_copy(*node_.counters, *node_.route, static_cast<size_t>(node_.cost.bytes))
            : launch_.finish_kernel(*node_.counters, node_.cost));
  }

 private:
  const Node& node_;
  OnShadow shadow_;
  Launch launch_;
};

// Strict mode: page-locked memory is touched by the stream, and the host sees the end of a copy when it has waited for
// it. False when the copy can't be kept apart.
bool copy_checked(const Node& node, musaStream_t stream) {
  const at::Tensor& target = node.arguments[0].toTensor();
  const at::Tensor& source = node.arguments[1].toTensor();
  const bool to_host = node.route->to_device < 0;
  const MemoryRange host = memory_of(*(to_host ? target : source).unsafeGetTensorImpl());
  MUSA_CHECK(musaSimAccess(stream, host.address, host.bytes, to_host ? 1 : 0, node.name.c_str()));
  if (!can_defer(target, source)) {
    return false;
  }
  copy_deferred(target, source, to_host, stream, node.name.c_str());
  return true;
}

bool crosses_host(const Node& node) {
  return node.route.has_value() && (node.route->to_device < 0 || node.route->from_device < 0);
}

}  // namespace

int64_t Node::run(torch::jit::Stack& stack, musaStream_t stream, int64_t start_ns) {
  std::optional<Watched> watched;
  if (C10_UNLIKELY(musart::watched() != 0 && key != c10::DispatchKey::PrivateUse1)) {
    watched.emplace(*this, stream, start_ns);
  }
  if (op.has_value()) {
    if (const int64_t end_ns = run_kernel(stack, stream, start_ns); key == c10::DispatchKey::PrivateUse1) {
      return end_ns;  // the kernel has told
    }
  }
  if (C10_UNLIKELY(watched.has_value())) {
    watched->finish();
  } else {
    counters->add(cost.bytes, {start_ns, start_ns + device_ns});
  }
  return start_ns + device_ns;
}

int64_t Node::run_kernel(torch::jit::Stack& stack, musaStream_t stream, int64_t start_ns) {
  if (C10_UNLIKELY(crosses_host(*this) && watches_races() && copy_checked(*this, stream))) {
    return start_ns + device_ns;
  }
  stack.assign(arguments.begin(), arguments.end());
  for (const size_t index : generators) {
    auto* card_generator = generator.get<MusaGenerator>();
    const std::lock_guard<std::mutex> lock(card_generator->mutex_);
    stack[index] = cpu_generator_at(card_generator->reserve(1));
  }
  const PlannedMemory memory(blocks, stream);
  if (key == c10::DispatchKey::PrivateUse1) {
    const OnShadow shadow(card, stream, start_ns);
    op->redispatchBoxed(c10::DispatchKeySet(key), &stack);
    put_in_place(stack, *this, memory);
    stack.clear();
    return start_ns + shadow.elapsed_ns();
  }
  std::optional<OneThread> alone;
  if (C10_UNLIKELY(one_thread)) {
    alone.emplace();
  }
  const AllocateOnCard on_card(card, stream);
  run_host_kernel(*op, native, *counters, &stack);
  put_in_place(stack, *this, memory);
  stack.clear();
  return start_ns + device_ns;
}

}  // namespace musa::graph
