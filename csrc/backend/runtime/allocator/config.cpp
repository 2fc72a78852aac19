#include "backend/runtime/allocator/config.h"

#include <c10/core/AllocatorConfig.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/custom_allocator.h"
#include "backend/unified_host_memory.h"
#include "musart/musart_sim.h"

namespace musa::allocator {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

namespace {

constexpr const char* kWrongForm = "a value has the wrong form (a number, True or False, or a list in brackets)";

enum class Form { kOfTorch, kFlag, kCount, kFraction, kBackend, kUnified };

struct Key {
  std::string_view name;
  Form form;
};

// Every key of CUDA's and of the real musa allocator. docs/settings.md says which of them mean something here.
constexpr Key kKeys[] = {
    {"garbage_collection_threshold", Form::kOfTorch},
    {"max_split_size_mb", Form::kOfTorch},
    {"max_non_split_rounding_mb", Form::kOfTorch},
    {"roundup_power2_divisions", Form::kOfTorch},
    {"large_segment_size_mb", Form::kOfTorch},
    {"expandable_segments", Form::kOfTorch},
    {"pinned_max_round_threshold_mb", Form::kOfTorch},
    {"pinned_max_cached_size_mb", Form::kOfTorch},
    {"pinned_use_background_threads", Form::kOfTorch},
    {"per_process_memory_fraction", Form::kFraction},
    {"throw_on_musamalloc_oom", Form::kFlag},
    {"throw_on_cudamalloc_oom", Form::kFlag},
    {"backend", Form::kBackend},
    {"cpu", Form::kUnified},
    {"graph_capture_record_stream_reuse", Form::kFlag},
    {"pinned_num_register_threads", Form::kCount},
    {"pinned_reserve_segment_size_mb", Form::kCount},
    {"pinned_use_musa_host_register", Form::kFlag},
    {"pinned_use_cuda_host_register", Form::kFlag},
    {"pinned_use_hip_host_register", Form::kFlag},
    {"release_lock_on_musamalloc", Form::kFlag},
    {"release_lock_on_cudamalloc", Form::kFlag},
    {"release_lock_on_hipmalloc", Form::kFlag},
};

struct Own {
  std::optional<double> fraction;
  bool refuse_beyond_fraction = false;
  bool unified_host_memory = false;
};

std::mutex& own_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Own& own() {
  static auto* instance = new Own;
  return *instance;
}

[[noreturn]] void refuse(const char* source, const std::string& value, const std::string& why) {
  std::string keys;
  for (const Key& key : kKeys) {
    keys += (keys.empty() ? "" : ", ") + std::string(key.name);
  }
  C10_THROW_ERROR(
      ValueError,
      std::string(source) + "='" + value + "' is not accepted: " + why +
          ". Write key:value pairs separated by "
          "commas, for example 'garbage_collection_threshold:0.8,max_split_size_mb:128'; the keys are " +
          keys + ".");
}

struct Refused {
  std::string why;
};

const Key* find_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (key.name == name) {
      return &key;
    }
  }
  return nullptr;
}

bool read_flag(const std::string& key, const std::string& value) {
  if (value != "True" && value != "False") {
    throw Refused{"'" + key + "' is True or False, not '" + value + "'"};
  }
  return value == "True";
}

double read_number(const std::string& key, const std::string& value) {
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (end != value.c_str() + value.size() || !(number >= 0)) {
    throw Refused{"'" + key + "' is a number, not '" + value + "'"};
  }
  return number;
}

// Checks one pair, and keeps what is ours.
void read_pair(const std::string& name, const std::string& value, Own& into) {
  const Key* key = find_key(name);
  if (!key) {
    throw Refused{"unknown key '" + name + "'"};
  }
  switch (key->form) {
    case Form::kOfTorch:
      return;
    case Form::kFlag: {
      const bool on = read_flag(name, value);
      if (name.starts_with("throw_on_")) {
        into.refuse_beyond_fraction = on;
      }
      return;
    }
    case Form::kCount:
      read_number(name, value);
      return;
    case Form::kFraction: {
      const double fraction = read_number(name, value);
      if (fraction <= 0 || fraction > 1) {
        throw Refused{"'" + name + "' lies above 0 and up to 1, not at " + value};
      }
      into.fraction = fraction;
      return;
    }
    case Form::kBackend:
      if (value == "musaMallocAsync" || value == "unified") {
        throw Refused{"the simulated device has no backend '" + value + "', only 'native'"};
      }
      if (value != "native" && value != "cudaMallocAsync") {
        throw Refused{"unknown backend '" + value + "'"};
      }
      return;
    case Form::kUnified:
      if (value != "unified") {
        throw Refused{"'cpu' can only be 'unified'"};
      }
      into.unified_host_memory = true;
      return;
  }
}

// "key:value" pairs; a value in brackets may hold commas and colons.
Own read_pairs(const std::string& text, Own into) {
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
      return into;
    }
    const size_t colon = pair.find(':');
    if (colon == std::string::npos || colon + 1 == pair.size()) {
      throw Refused{"'" + pair + "' is no key:value pair"};
    }
    read_pair(pair.substr(0, colon), pair.substr(colon + 1), into);
  }
  return into;
}

Own own_settings() {
  const std::lock_guard<std::mutex> lock(own_mutex());
  return own();
}

void keep(const Own& settings) {
  const std::lock_guard<std::mutex> lock(own_mutex());
  own() = settings;
  if (settings.unified_host_memory) {
    set_unified_host_memory(true);
  }
}

// torch's parser must know our keys to pass over them, and tells us of texts that it is given at run time.
const bool registered = [] {
  auto& known = AcceleratorAllocatorConfig::getMutableKeys();
  for (const Key& key : kKeys) {
    if (key.form != Form::kOfTorch) {
      known.insert(std::string(key.name));
    }
  }
  AcceleratorAllocatorConfig::getConfigParserHook() = [](const std::string& text) {
    try {
      keep(read_pairs(text, own_settings()));
    } catch (const Refused& refused) {
      refuse("settings", text, refused.why);
    }
  };
  return true;
}();

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
    Own settings = value ? read_pairs(value, {}) : Own{};
    AcceleratorAllocatorConfig::instance();  // reads the shared variable
    if (const char* ours = value_of("PYTORCH_MUSA_ALLOC_CONF")) {
      variable = "PYTORCH_MUSA_ALLOC_CONF";
      value = ours;
      settings = read_pairs(value, settings);
      AcceleratorAllocatorConfig::instance().parseArgs(value);
    }
    keep(settings);
  } catch (const Refused& refused) {
    refuse(variable, value, refused.why);
  } catch (const c10::ValueError& error) {
    refuse(variable, value ? value : "", error.what_without_backtrace());
  } catch (const std::exception&) {
    refuse(variable, value ? value : "", kWrongForm);
  }
  if (value_of("PYTORCH_NO_MUSA_MEMORY_CACHING")) {
    enable_caching(false);
  }
  applied = true;
}

void apply_settings(const std::string& text) {
  try {
    const Own before = own_settings();
    const Own settings = read_pairs(text, before);
    AcceleratorAllocatorConfig::instance().parseArgs(text);
    keep(settings);
    for (int device = 0; settings.fraction != before.fraction && device < musaSimArenaInfo.cards; ++device) {
      if (CardPool* pool = existing_pool(device)) {
        pool->set_fraction(*settings.fraction);
      }
    }
  } catch (const Refused& refused) {
    refuse("settings", text, refused.why);
  } catch (const c10::ValueError& error) {
    refuse("settings", text, error.what_without_backtrace());
  } catch (const std::exception&) {
    refuse("settings", text, kWrongForm);
  }
}

std::optional<double> configured_fraction() { return own_settings().fraction; }

bool refuses_beyond_fraction() { return own_settings().refuse_beyond_fraction; }

}  // namespace musa::allocator
