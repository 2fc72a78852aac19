#include "backend/bridge/card_twin.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "backend/bridge/host_view.h"
#include "backend/runtime/device.h"
#include "backend/storage.h"

namespace musa {
namespace {

using torch::jit::Stack;

class Twin final : public c10::OperatorKernel {
 public:
  explicit Twin(c10::OperatorHandle op) : op_(std::move(op)) {}

  void operator()(const c10::OperatorHandle& /*twin*/, c10::DispatchKeySet /*keys*/, Stack* stack) {
    const AllocateOnCard host(/*device=*/0, /*stream=*/nullptr);
    Pairs pairs;
    const size_t arguments = op_.schema().arguments().size();
    for (size_t i = stack->size() - arguments; i < stack->size(); ++i) {
      replace((*stack)[i], [&](const at::Tensor& tensor) { return to_card(tensor, pairs); });
    }
    op_.callBoxed(stack);
    for (size_t i = stack->size() - op_.schema().returns().size(); i < stack->size(); ++i) {
      replace((*stack)[i], [&](const at::Tensor& tensor) { return to_host(tensor, pairs); });
    }
  }

 private:
  using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;  // (shown, on the card)

  static at::Tensor to_card(const at::Tensor& tensor, Pairs& pairs) {
    if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage() ||
        !musart::is_alias_pointer(tensor.storage().data())) {
      return tensor;
    }
    const int card = musart::device_of(musart::to_device(tensor.storage().data()));
    pairs.emplace_back(tensor, card_tensor(tensor, c10::Device(kMusa, static_cast<c10::DeviceIndex>(card))));
    return pairs.back().second;
  }

  static at::Tensor to_host(const at::Tensor& tensor, const Pairs& pairs) {
    const auto same = [&](const auto& pair) { return pair.second.is_same(tensor); };
    const auto found = std::find_if(pairs.begin(), pairs.end(), same);
    return found != pairs.end() ? found->first : host_view(tensor);
  }

  template <class F>
  static void replace(c10::IValue& value, F&& with) {
    if (value.isTensor()) {
      value = with(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(with(tensor));
      }
      value = std::move(list);
    } else if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> list;
      const bool tensors = value.toList().elementType()->containedType(0)->kind() == c10::TypeKind::TensorType;
      if (!tensors) {
        return;
      }
      for (const c10::IValue& element : value.toListRef()) {
        list.push_back(element.isTensor() ? std::optional<at::Tensor>(with(element.toTensor())) : std::nullopt);
      }
      value = std::move(list);
    }
  }

  c10::OperatorHandle op_;
};

std::string define_twin(const std::string& name, const std::string& overload) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  std::string plain = name;
  plain.replace(plain.find("::"), 2, "_");
  const c10::FunctionSchema& schema = op.schema();
  const auto op_tags = op.getTags();
  const std::vector<at::Tag> tags(op_tags.begin(), op_tags.end());
  // Never destroyed: the twin lives as long as the process.
  static auto* library = new torch::Library(torch::Library::FRAGMENT, "musa_card", std::nullopt, __FILE__, __LINE__);
  library->def(c10::FunctionSchema("musa_card::" + plain, overload, schema.arguments(), schema.returns()), tags);
  const std::string full = overload.empty() ? plain : plain + "." + overload;
  library->impl(
      full.c_str(),
      torch::dispatch(
          c10::DispatchKey::CompositeExplicitAutograd,
          torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Twin>(op))));
  return "musa_card::" + plain;
}

}  // namespace

std::string card_twin(const std::string& name, const std::string& overload) {
  static auto& known = *new std::map<std::pair<std::string, std::string>, std::string>();
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [found, fresh] = known.try_emplace({name, overload});
  if (fresh) {
    try {
      found->second = define_twin(name, overload);
    } catch (...) {
      known.erase(found);
      throw;
    }
  }
  return found->second;
}

}  // namespace musa
