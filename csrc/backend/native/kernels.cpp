#include "backend/native/kernels.h"

#include <c10/util/Exception.h>

#include <set>
#include <string_view>
#include <unordered_map>

#include "musart/musart_sim.h"

namespace musa {

namespace detail {

constinit thread_local bool ran_reference = false;

}  // namespace detail

namespace {

std::unordered_map<std::string, NativeKernel>& all_kernels() {
  static auto* kernels = new std::unordered_map<std::string, NativeKernel>();
  return *kernels;
}

// What TORCH_MUSA_SIM_NATIVE says, read at the first question.
struct Selection {
  bool others = true;  // whether kernels that are not named are on
  std::set<std::string, std::less<>> named;

  Selection() {
    std::string_view text = musaSimSettingValue("TORCH_MUSA_SIM_NATIVE");
    if (text == "1" || text == "0") {
      others = text == "1";
      return;
    }
    others = text.starts_with('-');
    while (!text.empty()) {
      const size_t comma = text.find(',');
      std::string_view name = text.substr(0, comma);
      text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
      const auto is_filler = [](char c) { return c == ' ' || c == '\t' || c == '-'; };
      while (!name.empty() && is_filler(name.front())) name.remove_prefix(1);
      while (!name.empty() && is_filler(name.back())) name.remove_suffix(1);
      named.emplace(name);
    }
  }

  bool names(std::string_view full) const {
    if (named.empty()) {
      return false;
    }
    const size_t colon = full.rfind(':');
    std::string_view plain = colon == std::string_view::npos ? full : full.substr(colon + 1);
    const std::string_view without_overload = plain.substr(0, plain.find('.'));
    return named.contains(full) || named.contains(plain) || named.contains(without_overload);
  }
};

}  // namespace

void detail::add_native_kernel(NativeKernel kernel) {
  const std::string name = kernel.name;
  const bool is_new = all_kernels().emplace(name, std::move(kernel)).second;
  TORCH_INTERNAL_ASSERT(is_new, "two native kernels for ", name);
}

bool native_enabled(std::string_view name) {
  static const Selection& selection = *new Selection();
  return selection.names(name) != selection.others;
}

const NativeKernel* native_kernel(const std::string& name) {
  const auto found = all_kernels().find(name);
  return found != all_kernels().end() && native_enabled(name) ? &found->second : nullptr;
}

}  // namespace musa
