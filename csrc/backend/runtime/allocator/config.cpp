#include "backend/runtime/allocator/config.h"

#include <c10/core/AllocatorConfig.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "musart/musart_sim.h"

namespace musa::allocator {

namespace {

constexpr std::string_view kAccepted[] = {
    "garbage_collection_threshold", "max_split_size_mb",
    "max_non_split_rounding_mb",    "roundup_power2_divisions",
    "large_segment_size_mb",        "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",    "pinned_use_background_threads",
    "expandable_segments",
};

// Keys of other backends that torch's shared variable may carry.
constexpr std::string_view kOfOtherBackends[] = {
    "backend",
    "graph_capture_record_stream_reuse",
    "per_process_memory_fraction",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "throw_on_cudamalloc_oom",
};

[[noreturn]] void refuse(const char* variable, const std::string& value, const std::string& why) {
  std::string keys;
  for (const std::string_view key : kAccepted) {
    keys += (keys.empty() ? "" : ", ") + std::string(key);
  }
  C10_THROW_ERROR(
      ValueError,
      std::string(variable) + "='" + value + "' is not accepted: " + why +
          ". Write key:value pairs separated by "
          "commas, for example 'garbage_collection_threshold:0.8,max_split_size_mb:128'; the keys are " +
          keys + ".");
}

struct Refused {
  std::string why;
};

template <size_t N>
bool contains(const std::string_view (&keys)[N], std::string_view key) {
  for (const std::string_view known : keys) {
    if (known == key) {
      return true;
    }
  }
  return false;
}

// "key:value" pairs; a value in brackets may hold commas and colons.
void check_keys(const std::string& text, bool shared) {
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') {
      ++depth;
    } else if (i < text.size() && text[i] == ']') {
      --depth;
    }
    if (depth < 0 || (i == text.size() && depth != 0)) {
      throw Refused{"its brackets don't match"};
    }
    if (i < text.size() && (text[i] != ',' || depth > 0)) {
      continue;
    }
    std::string pair;
    for (const char c : text.substr(begin, i - begin)) {
      if (!std::isspace(static_cast<unsigned char>(c))) {
        pair += c;
      }
    }
    begin = i + 1;
    if (pair.empty() && text.find_first_not_of(" \t,") == std::string::npos) {
      return;
    }
    const size_t colon = pair.find(':');
    const std::string key = pair.substr(0, colon);
    if (colon == std::string::npos || colon + 1 == pair.size()) {
      throw Refused{"'" + pair + "' is no key:value pair"};
    }
    if (!contains(kAccepted, key) && !(shared && contains(kOfOtherBackends, key))) {
      throw Refused{"unknown key '" + key + "'"};
    }
  }
}

const char* value_of(const char* variable) {
  const char* declared = musaSimSettingValue(variable);
  const char* value = declared ? declared : std::getenv(variable);
  return value && *value ? value : nullptr;
}

}  // namespace

void apply_config() {
  static std::mutex* mutex = new std::mutex;
  static bool applied = false;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (applied) {
    return;
  }
  const char* variable = "PYTORCH_ALLOC_CONF";
  const char* value = value_of(variable);
  try {
    if (value) {
      check_keys(value, true);
    }
    c10::CachingAllocator::AcceleratorAllocatorConfig::instance();  // reads the shared variable
    const char* own = value_of("PYTORCH_MUSA_ALLOC_CONF");
    if (own) {
      variable = "PYTORCH_MUSA_ALLOC_CONF";
      value = own;
      check_keys(value, false);
      c10::CachingAllocator::setAllocatorSettings(value);
    }
  } catch (const Refused& refused) {
    refuse(variable, value, refused.why);
  } catch (const c10::ValueError& error) {
    refuse(variable, value ? value : "", error.what_without_backtrace());
  } catch (const std::exception&) {
    refuse(variable, value ? value : "", "a value has the wrong form (a number, True or False, or a list in brackets)");
  }
  if (c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments()) {
    TORCH_WARN("expandable_segments has no effect on the simulated musa device: its segments never move or grow.");
  }
  applied = true;
}

}  // namespace musa::allocator
