#include "backend/native/machine.h"

#include "mudnn/isa.h"
#include "mudnn/limits.h"

namespace musa {

std::string instruction_set() { return mudnn::isa_name(mudnn::isa()); }

std::string best_instruction_set() { return mudnn::isa_name(mudnn::best_isa()); }

float read_memory(const at::Tensor& memory) {
  TORCH_CHECK(memory.is_cpu() && memory.is_contiguous(), "read_memory takes a contiguous CPU tensor");
  return mudnn::read_four_streams(memory.const_data_ptr(), memory.nbytes() / 4096 * 4096);
}

double run_peak(c10::ScalarType type, int64_t rounds) {
  switch (type) {
    case c10::ScalarType::Float:
      return mudnn::run_peak(mudnn::PeakKind::kFloat32, rounds);
    case c10::ScalarType::BFloat16:
      return mudnn::run_peak(mudnn::PeakKind::kBfloat16, rounds);
    case c10::ScalarType::Char:
      return mudnn::run_peak(mudnn::PeakKind::kInt8, rounds);
    default:
      TORCH_CHECK_VALUE(false, "run_peak takes float32, bfloat16 or int8, got ", type);
  }
}

}  // namespace musa
