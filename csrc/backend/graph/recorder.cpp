#include "backend/graph/recorder.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sstream>

#include "backend/bridge/frame.h"
#include "backend/generator.h"
#include "backend/graph/interception.h"
#include "backend/graph/node_tensors.h"
#include "backend/graph/poison.h"
#include "backend/graph/refusal.h"
#include "backend/graph/shadow.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/host_allocator.h"
#include "backend/storage.h"
#include "musart/musart_capture.h"

namespace musa::graph {

namespace {

constinit std::atomic<bool> fills_memory{true};

using torch::jit::Stack;

template <class F>
void for_tensors(const Plan& plan, const Stack& stack, const F& visit) {
  const size_t first = stack.size() - plan.arg_count;
  for (const ArgPlan& argument : plan.args) {
    (void)map_tensors(stack[first + argument.index], argument.kind, [&](const at::Tensor& tensor) {
      visit(tensor, argument);
      return tensor;
    });
  }
}

/// Checks what the bridge checks before it runs a kernel, and returns the card.
c10::Device check_bridged(const Plan& plan, const Stack& stack) {
  const BelowAutograd state;
  Frame frame(plan);
  c10::DeviceIndex named = -1;
  const size_t first = stack.size() - plan.arg_count;
  for (const ArgPlan& argument : plan.args) {
    const c10::IValue& value = stack[first + argument.index];
    if (argument.kind == ArgKind::kDevice && value.isDevice() && value.toDevice().type() == kMusa) {
      named = value.toDevice().index();
    }
  }
  for_tensors(plan, stack, [&](const at::Tensor& tensor, const ArgPlan& argument) {
    (void)frame.show_tensor(tensor, argument);
  });
  frame.check_devices(frame.any_on_card() ? c10::DeviceIndex{-1} : named);
  return frame.device();
}

c10::Device check_native(const Plan& plan, const Stack& stack) {
  std::optional<c10::Device> device;
  for_tensors(plan, stack, [&](const at::Tensor& tensor, const ArgPlan& argument) {
    const bool number = tensor.device().is_cpu() && tensor.dim() == 0;
    if (!number && device.has_value() && *device != tensor.device()) {
      TORCH_CHECK(
          false, "Expected all tensors to be on the same device, but found at least two devices, ", *device, " and ",
          tensor.device(), "! (when checking argument for argument ", plan.arg_names[argument.index],
          " in method wrapper_MUSA_", plan.method, ")");
    }
    if (!number) {
      device = tensor.device();
    }
  });
  TORCH_INTERNAL_ASSERT(device.has_value(), plan.name, " was captured without a tensor");
  return *device;
}

// What makes CUDA wait depends on the arguments of some operators.
void refuse_waiting_arguments(const Plan& plan, const Stack& stack, musaStream_t stream) {
  const size_t first = stack.size() - plan.arg_count;
  bool masked = false;
  bool host_tensor = false;
  for_tensors(plan, stack, [&](const at::Tensor& tensor, const ArgPlan& argument) {
    const bool index = plan.has(kIndexes) && argument.index == 1;
    masked |= index && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
    host_tensor |= !is_card(tensor) && (index || tensor.dim() > 0);
  });
  if (host_tensor) {
    refuse_unpinned(stream);
  }
  if (masked) {
    // x[mask] = number is a masked_fill_; everything else counts the mask's elements first.
    const bool fills = plan.writes && stack[first + 2].isTensor() && stack[first + 2].toTensor().numel() == 1;
    if (!fills) {
      refuse(stream, plan.name, "it counts the elements of a mask; use torch.where or masked_fill instead");
    }
  }
}

musaSimCost argument_cost(const Plan& plan, const Stack& stack) {
  musaSimCost cost{};
  std::vector<const c10::TensorImpl*> seen;
  for_tensors(plan, stack, [&](const at::Tensor& tensor, const ArgPlan& argument) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!is_card(tensor) || std::find(seen.begin(), seen.end(), impl) != seen.end()) {
      return;
    }
    if (seen.empty()) {
      cost.dtype = cost_dtype(tensor.scalar_type());
    }
    seen.push_back(impl);
    cost.bytes += static_cast<double>(tensor.nbytes()) * (argument.read_and_written ? 2 : 1);
  });
  if (plan.native != nullptr && plan.native->cost != nullptr) {
    cost.flops = plan.native->cost(stack.data() + stack.size() - plan.arg_count).flops;
  } else if (plan.facts.flops != FlopRule::kNone) {
    cost.flops = operator_flops(plan.facts.flops, stack, stack.size() - plan.arg_count);
  }
  return cost;
}

int64_t kernel_ns(c10::DeviceIndex card, const musaSimCost& cost) {
  const musaSimCard* figures = nullptr;
  MUSA_CHECK(musaSimGetCard(card, &figures));
  return musaSimKernelNs(figures, &cost);
}

}  // namespace

void Recorder::handle(
    const c10::OperatorHandle& op, const OperatorClass& kind, c10::DispatchKeySet keys, musaStream_t stream,
    Stack* stack) {
  const Plan& plan = kind.plan;
  switch (kind.treatment) {
    case Treatment::kExecute: {
      const WithoutInterception plainly(kCaptureKey);
      op.redispatchBoxed(keys, stack);
      return;
    }
    case Treatment::kCopy:
      record_copy(plan, stack);
      return;
    case Treatment::kRefuse: {
      // With the size of its result given, repeat_interleave has nothing to wait for.
      const size_t last = stack->size() - 1;
      if (plan.method == "repeat_interleave" && plan.arg_names.back() == "output_size" && !(*stack)[last].isNone()) {
        break;
      }
      refuse(stream, plan.name, "the host waits for the card there");
    }
    case Treatment::kRecord:
      break;
  }
  record(op, kind, stack);
}

void Recorder::record(const c10::OperatorHandle& op, const OperatorClass& kind, Stack* stack) {
  const Plan& plan = kind.plan;
  const c10::Device card = kind.bridged ? check_bridged(plan, *stack) : check_native(plan, *stack);
  const musaStream_t stream = current_native_stream(card.index());
  refuse_waiting_arguments(plan, *stack, stream);
  const Rehearsal rehearsal = rehearse(op, kind, card, *stack);
  resize_written(rehearsal);

  Node node;
  node.op = op;
  node.key = kind.bridged ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  node.card = card.index();
  node.name = plan.name;
  node.counters = plan.counters;
  node.native = kind.bridged ? plan.native : nullptr;
  node.cost = argument_cost(plan, *stack);
  const size_t first = stack->size() - plan.arg_count;
  if (plan.has(kSerialAccumulation)) {
    node.one_thread = (*stack)[first + 3].toBool();
  }
  NodeTensors tensors(node.key);
  node.arguments.assign(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  for (const ArgPlan& argument : plan.args) {
    c10::IValue& value = node.arguments[argument.index];
    if (argument.kind == ArgKind::kDevice) {
      if (kind.bridged && value.isDevice()) {
        value = c10::Device(c10::kCPU);
      }
    } else if (argument.kind == ArgKind::kGenerator) {
      const std::optional<at::Generator> given =
          value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
      // Replays draw from the state that the generator has now, should it be given another one.
      node.generator = at::Generator(generator_for(given, card)->graphsafe_get_state());
      if (kind.bridged) {
        node.generators.push_back(argument.index);
      } else {
        value = node.generator;
      }
    } else {
      value = map_tensors(value, argument.kind, [&](const at::Tensor& tensor) {
        add_external(node, tensor, plan.arg_names[argument.index]);
        at::Tensor view = tensors.view(tensor);
        if (is_card(tensor)) {
          node.accesses.push_back({view, argument.written});
        }
        return view;
      });
    }
  }

  Results results(rehearsal, card, node, tensors);
  std::vector<c10::IValue> made;
  for (size_t i = 0; i < rehearsal.results().size(); ++i) {
    made.push_back(results.make(rehearsal.results()[i], i));
  }
  if (kind.bridged) {
    if (node.native != nullptr && node.native->cost != nullptr) {
      const double bytes = node.native->cost(stack->data() + first).bytes;
      node.cost.bytes = bytes >= 0 ? bytes : node.cost.bytes;
    }
    node.device_ns = kernel_ns(card.index(), node.cost);
  }
  add(std::move(node), stream);
  torch::jit::drop(*stack, plan.arg_count);
  stack->insert(stack->end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
}

void Recorder::record_copy(const Plan& plan, Stack* stack) {
  const size_t first = stack->size() - plan.arg_count;
  const at::Tensor self = (*stack)[first].toTensor();
  const at::Tensor target = (*stack)[first + 1].toTensor();
  const bool resizes = plan.method == "_copy_from_and_resize";
  const bool non_blocking = !resizes && (*stack)[first + 2].toBool();
  const int from = is_card(self) ? self.device().index() : -1;
  const int to = is_card(target) ? target.device().index() : -1;
  const c10::DeviceIndex card = static_cast<c10::DeviceIndex>(from >= 0 ? from : to);
  const musaStream_t stream = current_native_stream(card);
  const bool crosses_host = from < 0 || to < 0;
  if (crosses_host) {
    const at::Tensor& host_side = from < 0 ? self : target;
    TORCH_CHECK(
        host_side.is_cpu(), "Can't copy from ", self.device(), " to ", target.device(), "; copy through the CPU");
    if (!is_pinned(host_side.storage().data())) {
      refuse_unpinned(stream);
    }
    if (!non_blocking) {
      refuse(stream, plan.name, "the host waits for the copy; pass non_blocking=True");
    }
  } else if (from != to) {
    refuse_outside(current_native_stream(static_cast<c10::DeviceIndex>(to)), this, stream, plan.name);
  }
  if (self.sizes() != target.sizes()) {
    const WithoutInterception plainly(kCaptureKey);
    if (resizes) {
      target.resize_(self.sizes());
    } else {
      (void)self.expand(target.sizes());  // says what doesn't fit
    }
  }

  static const c10::OperatorHandle copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  Node node;
  node.op = copy;
  node.key = c10::DispatchKey::CPU;
  node.card = card;
  node.name = "aten::_copy_from";
  node.counters = &counters_of(node.name, /*bridged=*/false);
  std::ostringstream label;
  label << target.scalar_type() << target.sizes();
  node.label = label.str();
  add_external(node, self, "self");
  add_external(node, target, "dst");
  NodeTensors tensors(c10::DispatchKey::CPU);
  // The host's side is kept alive: a replay that reads freed memory of the process would be no simulation.
  const auto side = [&](const at::Tensor& tensor) { return is_card(tensor) ? tensors.view(tensor) : tensor; };
  node.arguments = {side(target), side(self), false};
  node.accesses = {{side(self), false}, {side(target), true}};
  if (!crosses_host && from == to) {
    node.cost = {
        0, static_cast<double>(self.nbytes()) + static_cast<double>(target.nbytes()), cost_dtype(self.scalar_type())};
    node.device_ns = kernel_ns(card, node.cost);
  } else {
    node.cost.bytes = static_cast<double>(target.nbytes());
    node.route = CopyRoute{to, from, /*pinned=*/true};
    const OnShadow shadow(card);
    MUSA_CHECK(musaSimLaunchCopy(shadow.stream(), to, from, target.nbytes(), /*pinned=*/1, nullptr));
    node.device_ns = shadow.elapsed_ns();
  }
  add(std::move(node), stream);
  torch::jit::drop(*stack, plan.arg_count);
  stack->emplace_back(target);
}

void Recorder::add_pause(const char* name, musaStream_t stream, const musaSimCost& cost) {
  Node node;
  node.card = card_;
  node.name = name;
  node.counters = &counters_of(node.name, /*bridged=*/false);
  node.cost = cost;
  node.device_ns = kernel_ns(card_, cost);
  add(std::move(node), stream);
}

// The offset in such a state is no number of draws, which only replays know, but the number of its mark.
uint64_t Recorder::mark_sequence(const MusaGenerator& generator) {
  const std::lock_guard<std::mutex> lock(mutex_);
  marks_.push_back({static_cast<int>(nodes_.size()), at::Generator(generator.graphsafe_get_state()), std::nullopt});
  return 4 * marks_.size();
}

void Recorder::return_to_mark(const MusaGenerator& generator, uint64_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t target = offset / 4 - 1;
  TORCH_CHECK(
      offset != 0 && target < marks_.size() && !marks_[target].target.has_value() &&
          marks_[target].generator.get<MusaGenerator>()->shares_state(generator),
      "While a graph is captured, a generator can only be set to a state that was got from it in the same capture.");
  marks_.push_back({static_cast<int>(nodes_.size()), marks_[target].generator, target});
}

void Recorder::add(Node node, musaStream_t stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int* dependencies = nullptr;
  int count = 0;
  MUSA_CHECK(musaSimCaptureNode(stream, &node.number, &dependencies, &count));
  node.dependencies.assign(dependencies, dependencies + count);
  nodes_.push_back(std::move(node));
}

void Recorder::add_external(Node& node, const at::Tensor& tensor, const std::string& argument) {
  if (!is_card(tensor) || !tensor.has_storage() || tensor.storage().data() == nullptr) {
    return;
  }
  const c10::Storage& storage = tensor.storage();
  if (!owns(musart::to_alias(storage.data()))) {
    node.external.push_back({storage.getWeakStorageImpl(), storage.data(), storage.nbytes(), argument});
  }
}

void fill_captured_memory(bool on) noexcept { fills_memory.store(on, std::memory_order_relaxed); }

void Recorder::note_allocation(void* alias, size_t nbytes) {
  if (fills_memory.load(std::memory_order_relaxed)) {
    std::memset(alias, kPoison, nbytes);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t& known = owned_[reinterpret_cast<uintptr_t>(alias)];
  known = std::max(known, nbytes);
}

bool record_pause(const char* name, musaStream_t stream, const musaSimCost& cost) {
  auto* recorder = musaSimCaptureCount() == 0 ? nullptr : static_cast<Recorder*>(musaSimCaptureOwner(stream));
  if (recorder != nullptr) {
    recorder->add_pause(name, stream, cost);
  }
  return recorder != nullptr;
}

bool Recorder::owns(const void* alias) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(alias);
  auto after = owned_.upper_bound(address);
  if (after == owned_.begin()) {
    return false;
  }
  --after;
  return address < after->first + after->second;
}

}  // namespace musa::graph
