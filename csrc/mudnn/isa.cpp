#include "mudnn/isa.h"

#include <string.h>

#include <algorithm>

#include "musart/musart_sim.h"

namespace mudnn {
namespace {

Isa choose() {
  const char* wanted = musaSimSettingValue("TORCH_MUSA_SIM_ISA");
  for (const Isa level : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (strcmp(wanted, isa_name(level)) == 0) {
      return std::min(level, best_isa());
    }
  }
  return best_isa();
}

}  // namespace

Isa best_isa() {
#if defined(MUDNN_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  return avx512 ? Isa::kAvx512 : avx2 ? Isa::kAvx2 : Isa::kPortable;
#else
  return Isa::kPortable;
#endif
}

Isa isa() {
  static const Isa level = choose();
  return level;
}

const char* isa_name(Isa level) {
  switch (level) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

}  // namespace mudnn
