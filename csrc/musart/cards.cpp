#include "musart/cards.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "musart/settings.h"
#include "musart/status.h"
#include "musart/text.h"

namespace musart {
namespace {

constexpr std::string_view kSuffix = ".card";
constexpr const char* kDtypeNames[musaSimDtypeCount] = {"fp64", "fp32", "tf32", "fp16", "bf16",
                                                        "fp8",  "int8", "fp4",  "int32"};

std::string card_folder() {
  const std::string configured = setting("TORCH_MUSA_SIM_CARD_DIR");
  if (!configured.empty()) return configured;
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(&card_folder), &library) == 0) return ".";
  std::string path = library.dli_fname;  // .../torch_musa_sim/lib/libmusart.so
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/../simulate/cards";
}

std::string models_in(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* directory = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (!name.ends_with(kSuffix)) continue;
      std::string model(name.substr(0, name.size() - kSuffix.size()));
      std::transform(model.begin(), model.end(), model.begin(), toupper);
      names.push_back(model);
    }
    closedir(directory);
  }
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none, the folder " + folder + " holds no card file" : list;
}

// The lines of one card file, and which of them were asked for.
class CardFile {
 public:
  explicit CardFile(std::string path) : path_(std::move(path)) {}

  musaError_t read() {
    std::ifstream file(path_);
    if (!file) return fail(musaErrorInvalidValue, "card file %s can't be read", path_.c_str());
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const std::string_view text = trim(line);
      if (text.empty() || text.front() == '#') continue;
      const size_t equals = text.find('=');
      const size_t comment = text.find('#');
      if (equals == std::string_view::npos || comment == std::string_view::npos || comment < equals ||
          !has_trust(trim(text.substr(comment + 1)))) {
        return fail(
            musaErrorInvalidValue,
            "card file %s line %d: expected `key = value  # vendor|measured|assumed: source`, got `%s`", path_.c_str(),
            number, line.c_str());
      }
      const std::string key(trim(text.substr(0, equals)));
      const std::string value(trim(text.substr(equals + 1, comment - equals - 1)));
      if (!values_.emplace(key, value).second) {
        return fail(
            musaErrorInvalidValue, "card file %s line %d: %s is given twice", path_.c_str(), number, key.c_str());
      }
    }
    return musaSuccess;
  }

  std::string text(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      note(key + " is missing");
      return {};
    }
    used_[key] = true;
    return found->second;
  }

  double number(const std::string& key, double least, double most) {
    const std::string value = text(key);
    if (value.empty()) return least;
    const auto parsed = parse_number(value);
    if (!parsed || *parsed < least || *parsed > most) {
      note(key + " = " + value + " is no number between " + brief(least) + " and " + brief(most));
      return least;
    }
    return *parsed;
  }

  // A rate times its efficiency factor.
  double rate(const std::string& key) { return number(key, 1e6, 1e18) * number(key + ".efficiency", 0.01, 1.0); }

  // The first thing that was wrong, or a key that nothing reads.
  musaError_t finish() {
    for (const auto& [key, value] : values_) {
      if (!used_[key]) note(key + " is not a known key");
    }
    if (problem_.empty()) return musaSuccess;
    return fail(musaErrorInvalidValue, "card file %s: %s", path_.c_str(), problem_.c_str());
  }

 private:
  static bool has_trust(std::string_view comment) {
    for (const std::string_view trust : {"vendor: ", "measured: ", "assumed: "}) {
      if (comment.substr(0, trust.size()) == trust && comment.size() > trust.size()) return true;
    }
    return false;
  }

  static std::string brief(double value) {
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    return text;
  }

  void note(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  std::string path_;
  std::string problem_;
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> used_;
};

void copy_text(char* to, size_t size, const std::string& text) { snprintf(to, size, "%s", text.c_str()); }

void read_figures(CardFile& file, musaSimCard& card) {
  copy_text(card.model, sizeof card.model, file.text("model"));
  card.memory = static_cast<size_t>(file.number("memory", 2097152.0, 1099511627776.0));
  for (int i = 0; i < musaSimDtypeCount; ++i) card.peak[i] = file.rate(std::string("peak.") + kDtypeNames[i]);
  card.bandwidth = file.rate("bandwidth");
  card.host_link = file.rate("host_link.to_card");
  card.host_link_back = file.rate("host_link.to_host");
  card.host_link_pageable = file.rate("host_link.pageable_to_card");
  card.host_link_pageable_back = file.rate("host_link.pageable_to_host");
  card.card_link = file.rate("card_link");
  const auto nanoseconds = [&](const char* key) { return static_cast<int64_t>(file.number(key, 0, 1e9)); };
  card.launch_ns = nanoseconds("launch_ns");
  card.sync_ns = nanoseconds("sync_ns");
  card.alloc_ns = nanoseconds("alloc_ns");
  card.poll_ns = std::max<int64_t>(1, nanoseconds("poll_ns"));
  card.kernel_ns = nanoseconds("kernel_ns");
  card.copy_ns = nanoseconds("copy_ns");
}

void read_properties(CardFile& file, musaDeviceProp& p) {
  copy_text(p.name, sizeof p.name, file.text("name"));
  const auto integer = [&](const char* key) { return static_cast<int>(file.number(key, 0, 2147483647.0)); };
  p.major = integer("capability.major");
  p.minor = integer("capability.minor");
  p.multiProcessorCount = integer("multiprocessors");
  p.warpSize = integer("warp_size");
  p.maxThreadsPerBlock = integer("threads_per_block");
  p.maxThreadsPerMultiProcessor = integer("threads_per_multiprocessor");
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = static_cast<size_t>(integer("shared_memory"));
  p.regsPerBlock = p.regsPerMultiprocessor = integer("registers");
  p.l2CacheSize = integer("l2_cache");
  p.clockRate = integer("clock_khz");
  p.memoryClockRate = integer("memory_clock_khz");
  p.memoryBusWidth = integer("memory_bus_bits");
  for (int axis = 0; axis < 3; ++axis) {
    p.maxThreadsDim[axis] = axis == 2 ? 64 : p.maxThreadsPerBlock;
    p.maxGridSize[axis] = axis == 0 ? 2147483647 : 65535;
  }
  p.asyncEngineCount = 2;
  p.concurrentKernels = 1;
}

void read_traits(CardFile& file, CardTraits& traits) {
  const auto integer = [&](const char* key, double most) { return static_cast<int>(file.number(key, 0, most)); };
  traits.ecc = file.text("ecc");
  traits.power_idle = file.number("power.idle", 1, 1e5);
  traits.power_limit = file.number("power.limit", 1, 1e5);
  traits.temperature_idle = file.number("temperature.idle", -50, 200);
  traits.temperature_load = file.number("temperature.load", -50, 200);
  traits.bandwidth = file.number("bandwidth", 1e6, 1e18);
  traits.link_bandwidth = file.number("links.bandwidth", 0, 1e18);
  traits.links = integer("links", 64);
  traits.links_per_peer = integer("links.per_peer", 64);
  traits.link_version = integer("links.version", 1e6);
  traits.pci_device_id = integer("pci.device_id", 65535);
  traits.pci_generation = integer("pci.generation", 10);
  traits.pci_lanes = integer("pci.lanes", 32);
}

musaError_t find_file(std::string* path) {
  const std::string name = setting("TORCH_MUSA_SIM_CARD");
  if (name.find('/') != std::string::npos || name.ends_with(kSuffix)) {
    *path = name;
    return musaSuccess;
  }
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), tolower);
  const std::string folder = card_folder();
  *path = folder + "/" + lower + std::string(kSuffix);
  if (std::ifstream(*path)) return musaSuccess;
  return fail(
      musaErrorInvalidValue, "TORCH_MUSA_SIM_CARD=%s is no known card model; accepted: %s, or the path of a card file",
      name.c_str(), models_in(folder).c_str());
}

}  // namespace

musaError_t load_card_model(CardModel* model) {
  std::string path;
  MUSART_TRY(find_file(&path));
  return load_card_file(path, musaSimSettingBytes("TORCH_MUSA_SIM_MEMORY"), model);
}

musaError_t load_card_file(const std::string& path, int64_t memory, CardModel* model) {
  char absolute[PATH_MAX];
  model->file = realpath(path.c_str(), absolute) != nullptr ? absolute : path;
  CardFile file(path);
  MUSART_TRY(file.read());
  read_figures(file, model->figures);
  model->graph_launch_ns = static_cast<int64_t>(file.number("graph_launch_ns", 0, 1e9));
  read_properties(file, model->properties);
  read_traits(file, model->traits);
  MUSART_TRY(file.finish());
  if (memory > 0) model->figures.memory = static_cast<size_t>(memory);
  model->figures.memory &= ~size_t{511};
  model->properties.totalGlobalMem = model->figures.memory;
  return musaSuccess;
}

void identify_card(int physical, musaDeviceProp* properties) {
  constexpr int kBusesPerDomain = 255;  // bus 0 is the root's
  properties->pciDomainID = physical / kBusesPerDomain;
  properties->pciBusID = physical % kBusesPerDomain + 1;
  constexpr unsigned char kMaker[] = "torch_musa_sim";
  memcpy(properties->uuid, kMaker, 14);
  properties->uuid[14] = static_cast<unsigned char>(physical >> 8);
  properties->uuid[15] = static_cast<unsigned char>(physical);
}

}  // namespace musart
