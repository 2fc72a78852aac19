#include "backend/coverage/peer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <sstream>

#include "backend/runtime/device.h"

namespace musa {
namespace {

using c10::DispatchKey;
using torch::jit::Stack;

class Quiet final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

/// Puts `kernel` before the one that `op` has for `key`, without torch's warning: it is meant to be replaced.
void put_before(const c10::OperatorName& op, c10::KernelFunction kernel, DispatchKey key = DispatchKey::PrivateUse1) {
  static Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  // Registrations live as long as the process.
  static auto* registrations = new std::vector<c10::RegistrationHandleRAII>();
  registrations->push_back(
      c10::Dispatcher::singleton().registerImpl(
          op, key, std::move(kernel), std::nullopt, nullptr, "torch_musa_sim peer"));
}

c10::OperatorHandle find(const std::string& op) {
  const size_t dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(op.substr(0, dot).c_str(), overload.c_str());
}

class Refusal final : public c10::OperatorKernel {
 public:
  explicit Refusal(std::string peer) : peer_(std::move(peer)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* /*stack*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "Could not run '", op.operator_name(),
        "' with arguments from the 'musa' backend. This could be because the operator doesn't exist for this backend: ",
        peer_, " has no '", op.operator_name(), "' (TORCH_MUSA_SIM_OPS=", peer_, "; unset it to run the operator).");
  }

 private:
  std::string peer_;
};

/// torch's composite kernel is what a backend without any registration gets: HPU is such a one in a CPU build.
class Composite final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
    op.redispatchBoxed(c10::DispatchKeySet(DispatchKey::HPU), stack);
  }
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) {
    parts.push_back(part);
  }
  return parts;
}

c10::ScalarType dtype_named(const std::string& name) {
  using c10::ScalarType;
  static const std::vector<std::pair<std::string, ScalarType>> names = {
      {"float32", ScalarType::Float},
      {"float64", ScalarType::Double},
      {"float16", ScalarType::Half},
      {"bfloat16", ScalarType::BFloat16},
      {"complex64", ScalarType::ComplexFloat},
      {"complex128", ScalarType::ComplexDouble},
      {"int64", ScalarType::Long},
      {"int32", ScalarType::Int},
      {"int16", ScalarType::Short},
      {"int8", ScalarType::Char},
      {"uint8", ScalarType::Byte},
      {"uint64", ScalarType::UInt64},
      {"bool", ScalarType::Bool},
      {"float8_e4m3fn", ScalarType::Float8_e4m3fn},
      {"float8_e5m2", ScalarType::Float8_e5m2}};
  for (const auto& [known, type] : names) {
    if (known == name) {
      return type;
    }
  }
  TORCH_CHECK(false, "unknown dtype '", name, "' in a table of limits");
}

struct HeadDims {
  int64_t query;
  int64_t value;
  bool at_most;
};

std::vector<HeadDims> parse_head_dims(const std::string& text) {
  std::vector<HeadDims> dims;
  for (const std::string& part : split(text, ',')) {
    if (part.rfind("<=", 0) == 0) {
      const int64_t size = std::stoll(part.substr(2));
      dims.push_back({size, size, true});
    } else {
      const std::vector<std::string> pair = split(part, ':');
      TORCH_CHECK(pair.size() == 2, "'", part, "' is no pair of head sizes in a table of limits");
      dims.push_back({std::stoll(pair[0]), std::stoll(pair[1]), false});
    }
  }
  return dims;
}

bool fits(const std::vector<HeadDims>& accepted, int64_t query, int64_t value) {
  return std::any_of(accepted.begin(), accepted.end(), [&](const HeadDims& dims) {
    return dims.at_most ? query <= dims.query && value <= dims.value : query == dims.query && value == dims.value;
  });
}

std::atomic<const std::vector<HeadDims>*> attention_dims{nullptr};

/// One PeerLimit, with the positions that it has in one schema.
struct Check {
  PeerLimit limit;
  size_t position = 0;
  size_t other = 0;  // of the second argument, for same_dtype and head_dims
  std::vector<c10::ScalarType> dtypes;
  std::vector<HeadDims> head_dims;
};

std::optional<size_t> position_of(const c10::FunctionSchema& schema, const std::string& argument) {
  const std::optional<int> found = schema.argumentIndexWithName(argument);
  return found.has_value() ? std::make_optional(static_cast<size_t>(*found)) : std::nullopt;
}

std::optional<Check> bind(const PeerLimit& limit, const c10::FunctionSchema& schema) {
  Check check{limit, 0, 0, {}, {}};
  const std::vector<std::string> arguments = split(limit.argument, ',');
  const auto first = position_of(schema, arguments.front());
  if (!first.has_value()) {
    return std::nullopt;
  }
  check.position = *first;
  if (limit.rule == "dtypes") {
    for (const std::string& name : split(limit.value, ',')) {
      check.dtypes.push_back(dtype_named(name));
    }
  } else if (limit.rule == "same_dtype" || limit.rule == "head_dims") {
    const auto second = position_of(schema, limit.rule == "head_dims" ? arguments.at(1) : limit.value);
    if (!second.has_value()) {
      return std::nullopt;
    }
    check.other = *second;
    if (limit.rule == "head_dims") {
      check.head_dims = parse_head_dims(limit.value);
    }
  } else {
    TORCH_CHECK(
        limit.rule == "equals" || limit.rule == "multiple_of" || limit.rule == "numel" || limit.rule == "column_major",
        "unknown rule '", limit.rule, "' in a table of limits");
  }
  return check;
}

/// A sentence about what is wrong; empty when the arguments are accepted.
std::string violation(const Check& check, const Stack& stack, size_t first) {
  const c10::IValue& value = stack[first + check.position];
  const std::string& rule = check.limit.rule;
  std::ostringstream text;
  if (rule == "equals") {
    if (value.isBool() && value.toBool() != (check.limit.value == "true")) {
      text << "takes only " << check.limit.argument << "=" << check.limit.value;
    }
    return text.str();
  }
  if (!value.isTensor() || !value.toTensor().defined()) {
    return "";
  }
  const at::Tensor& tensor = value.toTensor();
  const auto other = [&]() -> const at::Tensor& { return stack[first + check.other].toTensor(); };
  if (rule == "dtypes") {
    if (std::find(check.dtypes.begin(), check.dtypes.end(), tensor.scalar_type()) == check.dtypes.end()) {
      text << "takes " << check.limit.argument << " of " << check.limit.value << ", got "
           << c10::toString(tensor.scalar_type());
    }
  } else if (rule == "same_dtype") {
    if (stack[first + check.other].isTensor() && other().defined() && tensor.scalar_type() != other().scalar_type()) {
      text << "takes " << check.limit.argument << " and " << check.limit.value << " of one dtype, got "
           << c10::toString(tensor.scalar_type()) << " and " << c10::toString(other().scalar_type());
    }
  } else if (rule == "head_dims") {
    if (!fits(check.head_dims, tensor.size(-1), other().size(-1))) {
      text << "takes head sizes (query:value) " << check.limit.value << ", got " << tensor.size(-1) << ":"
           << other().size(-1);
    }
  } else if (rule == "multiple_of") {
    const int64_t divisor = std::stoll(check.limit.value);
    if (tensor.dim() != 2 || tensor.size(0) % divisor != 0 || tensor.size(1) % divisor != 0) {
      text << "takes a 2-d " << check.limit.argument << " with sizes divisible by " << divisor << ", got "
           << tensor.sizes();
    }
  } else if (rule == "numel") {
    if (tensor.numel() != std::stoll(check.limit.value)) {
      text << "takes " << check.limit.argument << " with " << check.limit.value << " element(s), got "
           << tensor.sizes();
    }
  } else if (tensor.dim() != 2 || tensor.stride(0) != 1) {
    text << "takes a column-major " << check.limit.argument
         << " (as the transpose of a contiguous tensor), got strides " << tensor.strides();
  }
  return text.str();
}

class Limited final : public c10::OperatorKernel {
 public:
  Limited(c10::SafeKernelFunction kernel, std::vector<Check> checks, std::string peer)
      : kernel_(std::move(kernel)), checks_(std::move(checks)), peer_(std::move(peer)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const size_t first = stack->size() - op.schema().arguments().size();
    for (const Check& check : checks_) {
      const std::string wrong = violation(check, *stack, first);
      TORCH_CHECK(
          wrong.empty(), "'", op.operator_name(), "' of ", peer_, " ", wrong, " (TORCH_MUSA_SIM_OPS=", peer_,
          "; unset it to run the operator).");
    }
    kernel_.callBoxed(op, keys, stack);
  }

 private:
  c10::SafeKernelFunction kernel_;
  std::vector<Check> checks_;
  std::string peer_;
};

std::string base_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(name.name.rfind(':') + 1);
  return base.back() == '_' && base.find_first_not_of('_') != std::string::npos ? base.substr(0, base.size() - 1)
                                                                                : base;
}

}  // namespace

void refuse_operators(const std::vector<std::string>& ops, const std::string& peer) {
  for (const std::string& op : ops) {
    put_before(find(op).operator_name(), c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(peer)));
  }
}

void replay_composites(const std::vector<std::string>& ops) {
  for (const std::string& name : ops) {
    const c10::OperatorHandle op = find(name);
    const auto composite = [] { return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Composite>()); };
    put_before(op.operator_name(), composite());
    if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      // There its gradient is that of what it calls, too.
      put_before(op.operator_name(), composite(), DispatchKey::AutogradPrivateUse1);
    }
  }
}

void limit_operators(const std::vector<PeerLimit>& limits, const std::string& peer) {
  for (const PeerLimit& limit : limits) {
    if (limit.rule == "head_dims") {
      attention_dims.store(new std::vector<HeadDims>(parse_head_dims(limit.value)), std::memory_order_release);
    }
  }
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.rfind("aten::", 0) != 0 || !op.has_value() ||
        op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
        !op->hasComputedKernelForDispatchKey(DispatchKey::PrivateUse1)) {
      continue;
    }
    std::vector<Check> checks;
    for (const PeerLimit& limit : limits) {
      if (limit.op == base_name(name)) {
        if (auto check = bind(limit, op->schema())) {
          checks.push_back(std::move(*check));
        }
      }
    }
    if (!checks.empty()) {
      put_before(
          name,
          c10::KernelFunction::makeFromBoxedFunctor(
              std::make_unique<Limited>(
                  op->getComputedKernelForDispatchKey(DispatchKey::PrivateUse1), std::move(checks), peer)));
    }
  }
}

bool peer_fuses_attention(int64_t query_head_dim, int64_t value_head_dim) {
  const std::vector<HeadDims>* dims = attention_dims.load(std::memory_order_acquire);
  return dims == nullptr || fits(*dims, query_head_dim, value_head_dim);
}

}  // namespace musa
