// TORCH_MUSA_SIM_OPS: operators behave as on another musa stack, one that lacks some of them and limits others. Which,
// is decided by the caller (torch_musa_sim/musa/peer.py); here is how.
#pragma once

#include <string>
#include <vector>

namespace musa {

/// One condition on one argument of an operator.
struct PeerLimit {
  std::string op;        // without overload and trailing underscore: it holds for all of them that have the argument
  std::string argument;  // as in the schema; "query,value" for head_dims
  /// dtypes: one of `value`. equals: the bool is `value`. same_dtype: as the argument `value`. head_dims: last sizes
  /// are one of `value` ("<=128", "160:160"). multiple_of: the last two sizes. numel: that many elements. column_major.
  std::string rule;
  std::string value;
};

/// From now on each of `ops` ("aten::add.Tensor") raises NotImplementedError on musa tensors. `peer` names the stack.
void refuse_operators(const std::vector<std::string>& ops, const std::string& peer);

/// From now on each of `ops` runs torch's composite kernel on musa tensors, whatever kernel we have.
void replay_composites(const std::vector<std::string>& ops);

/// From now on operators check `limits` before they run, and throw a RuntimeError that names `peer`.
void limit_operators(const std::vector<PeerLimit>& limits, const std::string& peer);

/// Whether the peer's fused attention takes heads of these sizes; true without limits.
bool peer_fuses_attention(int64_t query_head_dim, int64_t value_head_dim);

}  // namespace musa
