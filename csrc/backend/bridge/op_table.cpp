#include "backend/bridge/op_table.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace musa {

namespace {

using std::string_view;

constexpr auto kRefusingCpuScalars = std::to_array<string_view>({
#include "backend/bridge/device_checks.inc"
});

// Keyed by name without overload; all overloads and the out= form share the facts.
const std::unordered_map<string_view, OpFacts>& facts_by_name() {
  static const auto* facts = new std::unordered_map<string_view, OpFacts>{
      {"_local_scalar_dense", {kSynchronizes}},
      {"equal", {kSynchronizes}},
      {"nonzero", {kSynchronizes}},
      {"masked_select", {kSynchronizes}},
      {"_unique", {kSynchronizes}},
      {"_unique2", {kSynchronizes}},
      {"unique_dim", {kSynchronizes}},
      {"unique_consecutive", {kSynchronizes}},
      {"unique_dim_consecutive", {kSynchronizes}},
      {"bincount", {kSynchronizes}},
      {"repeat_interleave", {kSynchronizes}},
      {"linalg_eig", {kSynchronizes}},
      {"_linalg_eigvals", {kSynchronizes}},
      {"linalg_lstsq", {kSynchronizes}},
      {"_ctc_loss", {kSynchronizes | kTakesCpuTensors}},
      {"_ctc_loss_backward", {kTakesCpuTensors}},
      {"_pack_padded_sequence", {kSynchronizes | kTakesCpuTensors | kSecondResultOnCpu}},
      {"index", {kIndexes}},
      {"_unsafe_index", {kIndexes}},
      {"index_put", {kIndexes | kSerialAccumulation}},
      {"index_put_", {kIndexes | kSerialAccumulation}},
      {"_index_put_impl", {kIndexes | kSerialAccumulation}},
      {"_index_put_impl_", {kIndexes | kSerialAccumulation}},
      {"_foreach_addcdiv", {kTakesCpuTensors}},
      {"_foreach_addcdiv_", {kTakesCpuTensors}},
      {"_foreach_addcmul", {kTakesCpuTensors}},
      {"_foreach_addcmul_", {kTakesCpuTensors}},
      {"resize_", {kNoLaunch}},
      {"resize_as_", {kNoLaunch}},
      {"mm", {kNoFlags, FlopRule::kMatmul}},
      {"bmm", {kNoFlags, FlopRule::kMatmul}},
      {"mv", {kNoFlags, FlopRule::kMatmul}},
      {"dot", {kNoFlags, FlopRule::kMatmul}},
      {"vdot", {kNoFlags, FlopRule::kMatmul}},
      {"_int_mm", {kNoFlags, FlopRule::kMatmul}},
      {"_scaled_mm", {kNoFlags, FlopRule::kMatmul}},
      {"_scaled_mm_v2", {kNoFlags, FlopRule::kMatmul}},
      {"addmm", {kNoFlags, FlopRule::kMatmulAdd}},
      {"addmm_", {kNoFlags, FlopRule::kMatmulAdd}},
      {"_addmm_activation", {kNoFlags, FlopRule::kMatmulAdd}},
      {"addbmm", {kNoFlags, FlopRule::kMatmulAdd}},
      {"addbmm_", {kNoFlags, FlopRule::kMatmulAdd}},
      {"baddbmm", {kNoFlags, FlopRule::kMatmulAdd}},
      {"baddbmm_", {kNoFlags, FlopRule::kMatmulAdd}},
      {"addmv", {kNoFlags, FlopRule::kMatmulAdd}},
      {"addmv_", {kNoFlags, FlopRule::kMatmulAdd}},
      {"_scaled_dot_product_flash_attention_for_cpu", {kNoFlags, FlopRule::kAttention}},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", {kNoFlags, FlopRule::kAttentionBackward}},
  };
  return *facts;
}

struct UpcastRule {
  c10::ScalarType from;
  c10::ScalarType compute;
};

// What CUDA takes and the CPU kernel refuses, by operator without overload.
const std::unordered_map<string_view, std::vector<UpcastRule>>& upcasts() {
  using c10::ScalarType;
  constexpr UpcastRule kBf16{ScalarType::BFloat16, ScalarType::Float};
  constexpr UpcastRule kFp16{ScalarType::Half, ScalarType::Float};
  constexpr UpcastRule kBool{ScalarType::Bool, ScalarType::Byte};
  static const auto* rules = new std::unordered_map<string_view, std::vector<UpcastRule>>{
      {"avg_pool3d", {kBf16, kFp16}},
      {"avg_pool3d_backward", {kBf16, kFp16}},
      {"multi_margin_loss", {kBf16, kFp16}},
      {"multi_margin_loss_backward", {kBf16, kFp16}},
      {"multilabel_margin_loss_forward", {kBf16, kFp16}},
      {"multilabel_margin_loss_backward", {kBf16, kFp16}},
      {"_upsample_bilinear2d_aa", {kBf16, kFp16}},
      {"_upsample_bilinear2d_aa_backward", {kBf16, kFp16}},
      {"_fft_r2c", {kFp16}},
      {"_fft_c2r", {{ScalarType::ComplexHalf, ScalarType::ComplexFloat}}},
      {"_fft_c2c", {{ScalarType::ComplexHalf, ScalarType::ComplexFloat}}},
      {"polygamma", {kFp16}},
      {"abs", {kBool}},
      {"trace", {kBool}},
  };
  return *rules;
}

}  // namespace

OpFacts op_facts(string_view name, string_view overload) {
  OpFacts facts;
  if (const auto found = facts_by_name().find(name); found != facts_by_name().end()) {
    facts = found->second;
  }
  std::string full(name);
  if (!overload.empty()) {
    full.append(".").append(overload);
  }
  if (std::binary_search(kRefusingCpuScalars.begin(), kRefusingCpuScalars.end(), string_view(full))) {
    facts.flags |= kRefusesCpuScalars;
  }
  return facts;
}

bool has_upcast(string_view name) { return upcasts().contains(name); }

c10::ScalarType compute_dtype(string_view name, c10::ScalarType dtype) {
  if (const auto found = upcasts().find(name); found != upcasts().end()) {
    for (const UpcastRule& rule : found->second) {
      if (rule.from == dtype) {
        return rule.compute;
      }
    }
  }
  return dtype;
}

}  // namespace musa
