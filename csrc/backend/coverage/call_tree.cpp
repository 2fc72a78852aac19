#include "backend/coverage/call_tree.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "backend/runtime/device.h"

namespace musa {
namespace {

/// Started trees are never freed: a thread may be inside a call that began under an earlier one.
struct Tree {
  std::mutex mutex;
  CallNode root;
};

std::atomic<Tree*> live{nullptr};
std::optional<at::CallbackHandle> handle;
std::mutex handle_mutex;

thread_local Tree* thread_tree = nullptr;
thread_local CallNode* current = nullptr;

struct Context : at::ObserverContext {
  Tree* tree;
  CallNode* caller;
  CallNode* node;  // null: a call that isn't counted
};

const char* key_of(const at::Tensor& tensor) {
  if (tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched}))) {
    return "Other";
  }
  if (tensor.is_cpu()) {
    return "CPU";
  }
  if (tensor.device().type() != kMusa) {
    return "Other";
  }
  if (tensor.is_nested()) {
    return "NestedTensorPrivateUse1";
  }
  if (tensor.is_quantized()) {
    return "QuantizedPrivateUse1";
  }
  switch (tensor.layout()) {
    case c10::kStrided:
      return "PrivateUse1";
    case c10::kSparse:
      return "SparsePrivateUse1";
    default:
      return "SparseCsrPrivateUse1";
  }
}

/// What the operands of a call say together.
class Operands {
 public:
  void see(const c10::IValue& value) {
    if (value.isTensor()) {
      see(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          see(element.toTensor());
        }
      }
    } else if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      prefer(device.type() == kMusa ? "PrivateUse1" : device.is_cpu() ? "CPU" : "Other");
    }
  }

  void see(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    const char* key = key_of(tensor);
    prefer(key);
    if (std::string_view(key) != "Other") {
      bytes_ += static_cast<uint64_t>(tensor.is_sparse() ? 0 : tensor.nbytes());
    }
  }

  const char* place() const { return place_ == nullptr ? "CPU" : place_; }
  uint64_t bytes() const { return bytes_; }

 private:
  static int rank(std::string_view key) { return key == "Other" ? 4 : key == "CPU" ? 1 : key == "PrivateUse1" ? 2 : 3; }
  void prefer(const char* key) {
    if (place_ == nullptr || rank(key) > rank(place_)) {
      place_ = key;
    }
  }

  const char* place_ = nullptr;
  uint64_t bytes_ = 0;
};

const char* direction(c10::ArrayRef<const c10::IValue> inputs) {
  const c10::Device from = inputs[0].toTensor().device();
  const c10::Device to = inputs[1].toTensor().device();
  if (from == to) {
    return "OnCard";
  }
  return to.is_cpu() ? "ToHost" : from.is_cpu() ? "ToCard" : "BetweenCards";
}

bool has_kernel(const c10::OperatorName& name, const std::string& place) {
  const auto op = c10::Dispatcher::singleton().findOp(name);
  if (!op.has_value() || place == "Other") {
    return false;
  }
  if (op->hasKernelForDispatchKey(c10::parseDispatchKey(place))) {
    return true;
  }
  using c10::DispatchKey;
  return !op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
      !op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) &&
      !op->hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

bool is_copy(std::string_view place) {
  return place == "ToHost" || place == "ToCard" || place == "BetweenCards" || place == "OnCard";
}

CallNode* child(CallNode& caller, const c10::OperatorName& op, const char* place) {
  const std::string name = c10::toString(op);
  for (const auto& known : caller.children) {
    if (known->name == name && known->place == place) {
      return known.get();
    }
  }
  auto made = std::make_unique<CallNode>();
  made->name = name;
  made->place = place;
  made->kernel = is_copy(place) || has_kernel(op, place);
  caller.children.push_back(std::move(made));
  return caller.children.back().get();
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  Tree* tree = live.load(std::memory_order_acquire);
  const auto name = function.operator_name();
  if (tree == nullptr || !name.has_value()) {
    return nullptr;
  }
  if (thread_tree != tree) {
    thread_tree = tree;
    current = &tree->root;
  }
  Operands operands;
  for (const c10::IValue& value : function.inputs()) {
    operands.see(value);
  }
  const char* place = operands.place();
  auto context = std::make_unique<Context>();
  context->tree = tree;
  context->caller = current;
  context->node = nullptr;
  const std::lock_guard<std::mutex> lock(tree->mutex);
  if (current->kernel && std::string_view(place) == "CPU") {
    return context;
  }
  uint64_t bytes = operands.bytes();
  if (name->name == "aten::_copy_from" && std::string_view(place) != "Other") {
    place = direction(function.inputs());
    bytes = function.inputs()[1].toTensor().nbytes();
  }
  context->node = child(*current, *name, place);
  ++context->node->calls;
  context->node->bytes += bytes;
  current = context->node;
  return context;
}

void leave(const at::RecordFunction& function, at::ObserverContext* raw) {
  auto* context = static_cast<Context*>(raw);
  if (context == nullptr || thread_tree != context->tree) {
    return;
  }
  current = context->caller;
  if (context->node == nullptr || is_copy(context->node->place)) {
    return;
  }
  Operands results;
  for (const c10::IValue& value : function.outputs()) {
    results.see(value);
  }
  const std::lock_guard<std::mutex> lock(context->tree->mutex);
  context->node->bytes += results.bytes();
}

std::unique_ptr<CallNode> copy_of(const CallNode& node) {
  auto copy = std::make_unique<CallNode>();
  copy->name = node.name;
  copy->place = node.place;
  copy->kernel = node.kernel;
  copy->calls = node.calls;
  copy->bytes = node.bytes;
  for (const auto& child : node.children) {
    copy->children.push_back(copy_of(*child));
  }
  return copy;
}

Tree*& last_tree() {
  static Tree* tree = nullptr;
  return tree;
}

}  // namespace

void start_call_tree() {
  stop_call_tree();
  const std::lock_guard<std::mutex> lock(handle_mutex);
  last_tree() = new Tree();
  live.store(last_tree(), std::memory_order_release);
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

void stop_call_tree() {
  const std::lock_guard<std::mutex> lock(handle_mutex);
  live.store(nullptr, std::memory_order_release);
  if (handle.has_value()) {
    at::removeCallback(*handle);
    handle.reset();
  }
}

std::unique_ptr<CallNode> call_tree() {
  const std::lock_guard<std::mutex> lock(handle_mutex);
  Tree* tree = last_tree();
  if (tree == nullptr) {
    return std::make_unique<CallNode>();
  }
  const std::lock_guard<std::mutex> tree_lock(tree->mutex);
  return copy_of(tree->root);
}

}  // namespace musa
