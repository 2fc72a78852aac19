// aten::_grouped_mm in its four forms: offsets cut the rows of self, the columns of mat2, the depth of both, or
// nothing.
#include "backend/native/grouped_mm.h"

#include <ATen/native/GroupedMMUtils.h>
#include <ATen/ops/_grouped_mm.h>

#include "backend/native/gemm.h"
#include "backend/native/kernels.h"
#include "backend/native/product_variants.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

/// Ends of the groups; empty unless they rise within 0 .. size (the composite slices as Python does, whatever they
/// are).
c10::ArrayRef<int32_t> ends_of(const at::Tensor& offs, int64_t size) {
  const c10::ArrayRef<int32_t> ends(offs.const_data_ptr<int32_t>(), static_cast<size_t>(offs.numel()));
  int64_t last = 0;
  for (const int32_t end : ends) {
    if (end < last || end > size) {
      return {};
    }
    last = end;
  }
  return ends;
}

/// The product of whole matrices, which the groups are parts of.
mudnn::GemmProblem whole(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  mudnn::GemmProblem problem{};
  problem.dtype = *mudnn_dtype(a.scalar_type());
  problem.out_dtype = problem.dtype;
  problem.m = a.size(-2);
  problem.n = b.size(-1);
  problem.k = a.size(-1);
  problem.a = a.const_data_ptr();
  problem.b = b.const_data_ptr();
  problem.c = out.mutable_data_ptr();
  problem.a_row = a.stride(-2);
  problem.a_column = a.stride(-1);
  problem.b_row = b.stride(-2);
  problem.b_column = b.stride(-1);
  problem.c_row = out.stride(-2);
  problem.c_column = out.stride(-1);
  return problem;
}

void multiply_groups(const at::Tensor& a, const at::Tensor& b, c10::ArrayRef<int32_t> ends, const at::Tensor& out) {
  const mudnn::GemmProblem all = whole(a, b, out);
  const int64_t element = a.element_size();
  const int64_t a_matrix = a.dim() == 3 ? a.stride(0) : 0;
  const int64_t b_matrix = b.dim() == 3 ? b.stride(0) : 0;
  const int64_t c_matrix = out.dim() == 3 ? out.stride(0) : 0;
  int64_t begin = 0;
  for (size_t group = 0; group < ends.size(); ++group) {
    const int64_t size = ends[group] - begin;
    const auto index = static_cast<int64_t>(group);
    mudnn::GemmProblem problem = all;
    int64_t a_part = index * a_matrix;
    int64_t b_part = index * b_matrix;
    int64_t c_part = index * c_matrix;
    if (a.dim() == 2 && b.dim() == 2) {
      problem.k = size;
      a_part = begin * all.a_column;
      b_part = begin * all.b_row;
    } else if (a.dim() == 2) {
      problem.m = size;
      a_part = begin * all.a_row;
      c_part = begin * all.c_row;
    } else {
      problem.n = size;
      b_part = begin * all.b_column;
      c_part = begin * all.c_column;
    }
    problem.a = static_cast<const char*>(all.a) + a_part * element;
    problem.b = static_cast<const char*>(all.b) + b_part * element;
    problem.c = static_cast<char*>(all.c) + c_part * element;
    run_product(problem);
    begin = ends[group];
  }
}

}  // namespace

at::Tensor grouped_mm_on_host(
    const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
    const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  const auto composite = [&] {
    note_reference();
    return at::_grouped_mm(self, mat2, offs, bias, out_dtype);
  };
  if (!native_enabled("aten::_grouped_mm") || self.scalar_type() != mat2.scalar_type()) {
    return composite();
  }
  at::native::_grouped_mm_validate_inputs(self, mat2, offs, bias, out_dtype);
  const at::ScalarType dtype = at::native::_resolve_grouped_mm_out_dtype(self, mat2, out_dtype);
  if (!offs.has_value()) {
    const Product product{self, mat2};
    if (!can_multiply(product, dtype)) {
      return composite();
    }
    at::Tensor out = at::native::create_grouped_gemm_output_tensor(self, mat2, offs, dtype);
    multiply_into(product, out);
    return out;
  }
  const bool cuts_rows = self.dim() == 2 && mat2.dim() == 3;
  const bool cuts_depth = self.dim() == 2 && mat2.dim() == 2;
  const at::Tensor& cut = cuts_rows || cuts_depth ? self : mat2;
  const c10::MaybeOwned<at::Tensor> offsets = offs->expect_contiguous();
  const c10::ArrayRef<int32_t> ends = ends_of(*offsets, cut.size(cuts_rows ? 0 : 1));
  if (ends.empty() || (cuts_depth && self.size(1) != mat2.size(0))) {
    return composite();
  }
  at::Tensor out = at::native::create_grouped_gemm_output_tensor(self, mat2, offs, dtype);
  multiply_groups(self, mat2, ends, out);
  return out;
}

}  // namespace musa
