// Attention on host tensors, for the operators of torch's that mean it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace musa {

/// Whether our kernel takes tensors of these dtypes and sizes; it takes query, key and value of any strides.
bool attention_fits(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask);

/// In the layout of `like`, but with contiguous rows, as our kernels write.
at::Tensor empty_rows_like(const at::Tensor& like);

/// What musa::attention has beyond a mask; undefined tensors: none.
struct AttentionExtras {
  int64_t left = -1;
  int64_t right = -1;
  int64_t global_keys = 0;
  bool align_end = false;
  double softcap = 0;
  at::Tensor sinks = {};       // float32 [H], contiguous
  at::Tensor block_mask = {};  // bool [B or 1, H or 1, rows, columns], contiguous
  int64_t block_queries = 1;
  int64_t block_keys = 1;
};

/// query [B, H, M, E], key [B, Hkv, N, E], value [B, Hkv, N, Ev], `out` [B, H, M, Ev] and `logsumexp` [B, H, M] float32
/// (undefined: none) of any strides but 1 in the last dimension of `out`. mask: expandable to [B, H, M, N], bool (true:
/// attends) or floating.
void run_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    const AttentionExtras& extras, std::optional<double> scale, const at::Tensor& out, const at::Tensor& logsumexp);

struct AttentionGradients {
  at::Tensor query, key, value;
  at::Tensor sinks;  // float32 [H]; undefined where there are none
};

/// Of the same arguments, `out` and `logsumexp` as run_attention left them. grad_logsumexp: float32 or undefined
/// (zeros). Gradients of keys and values are summed over the group of queries they serve.
AttentionGradients run_attention_backward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    const AttentionExtras& extras, std::optional<double> scale, const at::Tensor& out, const at::Tensor& logsumexp,
    const at::Tensor& grad_out, const at::Tensor& grad_logsumexp);

}  // namespace musa
