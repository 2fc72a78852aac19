#include "backend/bridge/strict.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <fstream>
#include <sstream>
#include <string>
#include <unordered_map>

#include "musart/musart_sim.h"

namespace musa {

namespace {

constexpr uint64_t kAll = ~uint64_t{0};

uint64_t bit(c10::ScalarType type) { return uint64_t{1} << static_cast<unsigned>(type); }

const std::unordered_map<std::string, c10::ScalarType>& dtype_names() {
  using c10::ScalarType;
  static const auto* names = new std::unordered_map<std::string, ScalarType>{
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
      {"bool", ScalarType::Bool},
      {"uint16", ScalarType::UInt16},
      {"uint32", ScalarType::UInt32},
      {"uint64", ScalarType::UInt64},
      {"float8_e4m3fn", ScalarType::Float8_e4m3fn},
      {"float8_e5m2", ScalarType::Float8_e5m2}};
  return *names;
}

std::string table_path() {
  Dl_info info{};
  TORCH_CHECK(
      dladdr(reinterpret_cast<const void*>(&accepted_dtypes), &info) != 0 && info.dli_fname != nullptr,
      "The library of torch_musa_sim can't tell where it lies, so strict mode can't find its dtype table");
  const std::string library = info.dli_fname;
  return library.substr(0, library.rfind('/')) + "/../data/cuda_dtypes.tsv";
}

// Several rows may name one operator (variants of a test); it accepts what any of them accepts.
std::unordered_map<std::string, uint64_t> read_table() {
  const std::string path = table_path();
  std::ifstream file(path);
  TORCH_CHECK(
      file.good(), "TORCH_MUSA_SIM_STRICT=1 needs the dtype table ", path,
      ", which can't be read; install the package again or unset the variable");
  std::unordered_map<std::string, uint64_t> table;
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::string op, variant, aten, forward, dtype;
    std::getline(row, op, '\t');
    std::getline(row, variant, '\t');
    std::getline(row, aten, '\t');
    std::getline(row, forward, '\t');
    std::istringstream list(forward);
    while (std::getline(list, dtype, ',')) {
      if (const auto known = dtype_names().find(dtype); known != dtype_names().end()) {
        table[aten] |= bit(known->second);
      }
    }
  }
  return table;
}

// Dtypes that CUDA takes though the table of test samples does not say so: with them composites that CUDA accepts
// (square, relu6, full_like, special.ndtr) reach these operators, or the operator computes bools in int64.
uint64_t reached_by_composites(const std::string& op) {
  using c10::ScalarType;
  const uint64_t unsigned_types = bit(ScalarType::UInt16) | bit(ScalarType::UInt32) | bit(ScalarType::UInt64);
  if (op == "pow" || op == "cumsum" || op == "cumprod") {
    return bit(ScalarType::Bool);
  }
  if (op == "mean" || op == "neg" || op == "ormqr") {
    return kAll;  // the CPU refuses the same dtypes, in CUDA's words
  }
  if (op == "hardtanh") {
    return bit(ScalarType::Byte);
  }
  return op == "fill" || op == "mul" ? unsigned_types : 0;
}

}  // namespace

uint64_t accepted_dtypes(std::string_view op) {
  if (!musaSimSettingFlag("TORCH_MUSA_SIM_STRICT")) {
    return kAll;
  }
  static const auto* table = new std::unordered_map<std::string, uint64_t>(read_table());
  const std::string name(!op.empty() && op.back() == '_' ? op.substr(0, op.size() - 1) : op);
  const auto found = table->find(name);
  return found == table->end() ? kAll : found->second | reached_by_composites(name);
}

void check_accepted(uint64_t accepted, c10::ScalarType dtype, std::string_view op) {
  TORCH_CHECK(
      (accepted & bit(dtype)) != 0, '"', op, "_cuda\" not implemented for '", c10::toString(dtype),
      "' (TORCH_MUSA_SIM_STRICT=1 refuses what CUDA refuses; unset it to compute with this dtype)");
}

}  // namespace musa
