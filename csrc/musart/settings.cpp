#include "musart/settings.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "musart/fault_plan.h"
#include "musart/status.h"
#include "musart/text.h"

namespace musart {
namespace {

bool is_flag(const char* value) { return strcmp(value, "0") == 0 || strcmp(value, "1") == 0; }

bool is_strictness(const char* value) { return is_flag(value) || strcmp(value, "warn") == 0; }

bool is_text(const char*) { return true; }

bool is_peer(const char* value) { return *value == '\0' || strcmp(value, "torch_musa-2.7.1") == 0; }

// Names, or names with a '-' in front, not both.
bool is_operator_list(const char* value) {
  const std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:";
  const bool excluding = *value == '-';
  for (const std::string_view part : split(value, ',')) {
    std::string_view name = trim(part);
    if (name.starts_with('-') != excluding) return false;
    if (excluding) name.remove_prefix(1);
    if (name.empty() || name.find_first_not_of(allowed) != std::string_view::npos) return false;
  }
  return true;
}

bool is_isa(const char* value) {
  for (const char* known : {"best", "portable", "avx2", "avx512"}) {
    if (strcmp(value, known) == 0) return true;
  }
  return false;
}

bool is_tuning(const char* value) { return is_flag(value) || strcmp(value, "cached") == 0; }

bool is_card_count(const char* value) {
  const auto count = parse_int(value);
  return count && *count >= 1 && *count <= kMaxCards;
}

bool is_graph_limit(const char* value) {
  const auto limit = parse_int(value);
  return limit && *limit >= 0 && *limit <= 1000000;
}

bool is_card_memory(const char* value) {
  if (*value == '\0') return true;
  const auto bytes = parse_bytes(value);
  return bytes && *bytes >= (int64_t{2} << 20) && *bytes <= (int64_t{1} << 40);
}

bool is_arch(const char* value) {
  for (const char* known : {"", "21", "22", "31"}) {
    if (strcmp(value, known) == 0) return true;
  }
  return false;
}

bool is_switch(const char* value) {
  for (const char* known : {"off", "on", "0", "1", "false", "true"}) {
    if (strcasecmp(value, known) == 0) return true;
  }
  return false;
}

bool is_debug_level(const char* value) {
  const auto level = parse_int(value);
  return level && *level >= 1 && *level <= 6;
}

bool is_debug_length(const char* value) {
  const auto length = parse_int(value);
  return length && *length >= 0 && *length <= 1'000'000'000;
}

bool is_scope(const char* value) {
  const size_t length = strlen(value);
  return length <= 64 && strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

bool is_host_memory(const char* value) {
  if (*value == '\0' || strcmp(value, "overcommit") == 0) return true;
  const auto bytes = parse_bytes(value);
  return bytes && *bytes > 0;
}

bool is_fault_list(const char* value) {
  std::vector<musaSimFaultPlan> plans;
  std::string reason;
  return faults::parse(value, &plans, &reason);
}

struct Definition {
  musaSimSetting setting;
  bool (*accepts)(const char* value);
  bool empty_is_a_value = false;  // otherwise an empty variable counts as unset
};

constexpr const char* kVisible = "MUSA_VISIBLE_DEVICES";

const Definition kDefinitions[] = {
    {{kVisible, "card indices separated by commas, each once; empty hides all cards; all", "all",
      "which cards this process sees, in which order"},
     is_text,  // visible_cards reads it: what is right depends on the number of cards
     true},
    {{"MUSA_LAUNCH_BLOCKING", "0 | 1", "0", "each launch waits for its end on the virtual clock"}, is_flag},
    {{"PYTORCH_MUSA_ALLOC_CONF", "option:value pairs separated by commas", "", "options of the caching allocator"},
     is_text},
    {{"TORCH_MUSA_ARCH", "21 | 22 | 31", "", "architecture that build tools are told; empty: the cards' own"}, is_arch},
    {{"TORCH_MUSA_ARCH_LIST", "architectures separated by ';', as mp_22;mp_31", "",
      "architectures that build tools compile device code for; empty: the cards' own"},
     is_text},
    {{"TORCH_MUSA_TESTING_NO_TF32", "any text", "", "when set, torch_musa.testing keeps fp32 products out of tf32"},
     is_text},
    {{"TORCH_MUSA_OP_DEBUG", "off | on | 0 | 1 | false | true", "off", "a log of the operators that run on musa"},
     is_switch},
    {{"TORCH_MUSA_OP_DEBUG_LEVEL", "1 .. 6", "1",
      "1: shapes and scalars; 2: also statistics of the tensors; 3: their first values; 4: all values; "
      "5: 2 and 3; 6: 2 and 4"},
     is_debug_level},
    {{"TORCH_MUSA_OP_DEBUG_LENGTH", "0 .. 1000000000", "50", "how many first values the log shows"}, is_debug_length},
    {{"TORCH_MUSA_OP_DEBUG_DIR", "a folder", "./DEBUG_DIR",
      "where the log goes; a number is put behind the name of one that is there"},
     is_text},
    {{"TORCH_MUSA_OP_DEBUG_LIST", "parts of operator names separated by commas", "", "log only these; empty: all"},
     is_text},
    {{"TORCH_MUSA_OP_DEBUG_BLACK_LIST", "parts of operator names separated by commas", "", "log all but these"},
     is_text},
    {{"TORCH_USE_MUSA_DOUBLE_CAST", "any text", "",
      "no effect: float64 is always computed in float64, also where the real stack would be told to narrow it"},
     is_text},
    {{"CPU_UNIFIED_FLAG", "any text", "", "no effect: the simulated cards share no memory with the host"}, is_text},
    {{"PYTORCH_NO_MUSA_MEMORY_CACHING", "any text", "", "when set, every allocation and free goes to the card"},
     is_text},
    {{"FLAMEGRAPH_PL_SCRIPT", "path of flamegraph.pl", "",
      "the script that draws torch.musa.memory._save_memory_usage; empty: torch fetches one"},
     is_text},
    {{"MUSA_HOME", "a folder", "", "where extensions are told that the toolkit is; empty: MUSA_PATH, else the package"},
     is_text},
    {{"MUSA_PATH", "a folder", "", "as MUSA_HOME, which goes first"}, is_text},
    {{"MUDNN_HOME", "a folder", "", "where extensions are told that muDNN is; empty: MUDNN_PATH"}, is_text},
    {{"MUDNN_PATH", "a folder", "", "as MUDNN_HOME, which goes first"}, is_text},
    {{"TORCH_MUSA_SIM_CARDS", "1 .. 512", "8", "number of simulated cards"}, is_card_count},
    {{"TORCH_MUSA_SIM_CARD", "S80 | S4000 | S5000 | path of a card file", "S5000", "model of the simulated cards"},
     is_text},
    {{"TORCH_MUSA_SIM_CARD_DIR", "a folder", "", "where card files are looked for; empty: beside the library"},
     is_text},
    {{"TORCH_MUSA_SIM_MEMORY", "2MiB .. 1TiB, as 80GiB or 256MiB", "", "memory of each card; empty: the model's own"},
     is_card_memory},
    {{"TORCH_MUSA_SIM_SCOPE", "up to 64 letters, digits, '.', '_', '-'", "default",
      "processes of one user and scope share the cards' memory"},
     is_scope},
    {{"TORCH_MUSA_SIM_HOST_MEMORY", "a size as 16GiB | overcommit", "",
      "limit on this process's memory on the host; empty: what the host and its cgroup have; overcommit: no check"},
     is_host_memory},
    {{"TORCH_MUSA_SIM_STRICT", "0 | 1 | warn", "0",
      "1: refuse what hardware refuses, races are errors (docs/strict.md); warn: only report races, on stderr"},
     is_strictness},
    {{"TORCH_MUSA_SIM_NATIVE", "1 | 0 | names of operators separated by commas, or each with a '-' in front", "1",
      "native kernels: all, none, only those named, or all but those named (as mm or aten::mm.out)"},
     is_operator_list},
    {{"TORCH_MUSA_SIM_ISA", "best | portable | avx2 | avx512", "best",
      "highest instruction set that native kernels use; what the CPU lacks is never used"},
     is_isa},
    {{"TORCH_MUSA_SIM_AUTOTUNE", "0 | 1 | cached", "0",
      "1: where there are several native kernels each is timed once and the choice kept in a file; cached: choices of "
      "the "
      "file, none is timed; 0: by a model (docs/ops.md)"},
     is_tuning},
    {{"TORCH_MUSA_SIM_AUTOTUNE_CACHE", "path of a file", "",
      "where timed choices are kept; empty: torch_musa_sim/choices-*.txt in XDG_CACHE_HOME or ~/.cache"},
     is_text},
    {{"TORCH_MUSA_SIM_TRANSFORMERS", "0 | 1", "1",
      "transformers is taught the fused mixtures of experts and the attention of musa (docs/ops.md)"},
     is_flag},
    {{"TORCH_MUSA_SIM_GRAPH_LIMIT", "0 .. 1000000", "2048",
      "graphs that may be instantiated at a time, as by the real driver; 0: any number"},
     is_graph_limit},
    {{"TORCH_MUSA_SIM_GRAPH_CHECK", "0 | 1", "0", "each replay checks that the graph's inputs are where they were"},
     is_flag},
    {{faults::kSetting,
      "fault:number[@card][@after=5ms], ...; faults: alloc, segment, launch, copy (number: which call), "
      "lose, ecc (number: which card)",
      "", "faults that happen to the cards (docs/faults.md)"},
     is_fault_list},
    {{"TORCH_MUSA_SIM_OPS", "torch_musa-2.7.1", "",
      "operators that this stack lacks raise, composites and dtype limits are as there; read by `import torch`"},
     is_peer},
    {{"TORCH_MUSA_SIM_FAULT_REPORT", "0 | 1", "1", "a line on stderr when host code touches device memory"}, is_flag},
};
constexpr int kCount = sizeof kDefinitions / sizeof kDefinitions[0];

std::atomic<bool> frozen{false};
const char* frozen_values[kCount];

int index_of(const char* name) {
  for (int i = 0; i < kCount; ++i) {
    if (strcmp(kDefinitions[i].setting.name, name) == 0) return i;
  }
  return -1;
}

// A copy that lives as long as the process: the environment's own text may be replaced by setenv.
const char* keep(const char* text) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& texts = *new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return texts.insert(text).first->c_str();
}

const char* current_value(int index) {
  const Definition& definition = kDefinitions[index];
  const char* value = getenv(definition.setting.name);
  if (value == nullptr || (*value == '\0' && !definition.empty_is_a_value)) return definition.setting.default_value;
  return keep(value);
}

musaError_t refuse(const Definition& definition, const char* value, const char* why) {
  return fail(
      musaErrorInvalidValue, "%s=%s %s; accepted: %s (default %s)", definition.setting.name, value, why,
      definition.setting.accepted, *definition.setting.default_value ? definition.setting.default_value : "empty");
}

// A misspelt name would silently change nothing.
void warn_about_unknown_names() {
  constexpr std::string_view kPrefix = "TORCH_MUSA_SIM_";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::string name(text.substr(0, text.find('=')));
    if (index_of(name.c_str()) < 0) warn("environment variable %s is not known and has no effect", name.c_str());
  }
}

}  // namespace

const char* setting(const char* name) {
  const int index = index_of(name);
  if (index < 0) return nullptr;
  return frozen.load(std::memory_order_acquire) ? frozen_values[index] : current_value(index);
}

musaError_t check_setting_values() {
  for (int i = 0; i < kCount; ++i) {
    const char* value = setting(kDefinitions[i].setting.name);
    if (kDefinitions[i].accepts(value)) continue;
    return refuse(kDefinitions[i], value, "is not accepted");
  }
  return musaSuccess;
}

void freeze_settings() {
  for (int i = 0; i < kCount; ++i) frozen_values[i] = current_value(i);
  frozen.store(true, std::memory_order_release);
  warn_about_unknown_names();
}

musaError_t visible_cards(int cards, std::vector<int>* physical) {
  physical->clear();
  const char* value = setting(kVisible);
  if (strcmp(value, "all") == 0) {
    for (int i = 0; i < cards; ++i) physical->push_back(i);
    return musaSuccess;
  }
  if (trim(value).empty()) return musaSuccess;
  for (const std::string_view part : split(value, ',')) {
    const std::string text(trim(part));
    const auto index = parse_int(text);
    if (!index) {
      const std::string why = "holds '" + text + "', which is no card index";
      return refuse(kDefinitions[index_of(kVisible)], value, why.c_str());
    }
    if (*index < 0 || *index >= cards) {
      static std::atomic<bool> warned{false};
      // -1 is the customary way to hide everything and needs no remark.
      if (*index != -1 && !warned.exchange(true)) {
        warn(
            "%s=%s: there is no card %s (cards 0 .. %d exist), the list ends before it", kVisible, value, text.c_str(),
            cards - 1);
      }
      return musaSuccess;
    }
    for (const int other : *physical) {
      if (other != *index) continue;
      const std::string why = "names card " + text + " twice";
      physical->clear();
      return refuse(kDefinitions[index_of(kVisible)], value, why.c_str());
    }
    physical->push_back(static_cast<int>(*index));
  }
  return musaSuccess;
}

}  // namespace musart

extern "C" {

int musaSimSettingCount(void) { return musart::kCount; }

const musaSimSetting* musaSimSettingAt(int index) {
  return index >= 0 && index < musart::kCount ? &musart::kDefinitions[index].setting : nullptr;
}

const char* musaSimSettingValue(const char* name) { return name == nullptr ? nullptr : musart::setting(name); }

int musaSimSettingFlag(const char* name) {
  const char* value = musaSimSettingValue(name);
  return value != nullptr && strcmp(value, "1") == 0;
}

int64_t musaSimSettingInt(const char* name) {
  const char* value = musaSimSettingValue(name);
  return value == nullptr ? 0 : musart::parse_int(value).value_or(0);
}

int64_t musaSimSettingBytes(const char* name) {
  const char* value = musaSimSettingValue(name);
  return value == nullptr ? -1 : musart::parse_bytes(value).value_or(-1);
}

}  // extern "C"
