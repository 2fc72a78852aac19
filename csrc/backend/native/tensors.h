// From at::Tensor to what mudnn's kernels take.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace musa {

/// The kernels' type of elements; none where they have no such type.
inline std::optional<mudnn::Dtype> mudnn_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return mudnn::Dtype::kFloat32;
    case c10::ScalarType::BFloat16:
      return mudnn::Dtype::kBfloat16;
    case c10::ScalarType::Half:
      return mudnn::Dtype::kFloat16;
    default:
      return std::nullopt;
  }
}

/// torch's own threads, as many as torch.get_num_threads() allows; one inside a parallel region.
inline mudnn::Parallel torch_threads() {
  return {
      at::in_parallel_region() ? 1 : at::get_num_threads(),
      [](int64_t tasks, int64_t grain, mudnn::Parallel::Body body, void* context) {
        at::parallel_for(0, tasks, grain, [&](int64_t begin, int64_t end) { body(context, begin, end); });
      }};
}

}  // namespace musa
