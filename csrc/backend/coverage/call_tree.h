// Every call that goes through torch's dispatcher, as a tree: which operator called which, where its tensors were.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace musa {

/// All calls of one operator from one caller, with tensors of one place.
struct CallNode {
  std::string name;  // "aten::add.Tensor"; empty at the root
  /// Where the operands were: the dispatch key of tensors on a card ("PrivateUse1", "SparsePrivateUse1", ...), "CPU",
  /// "Other" (meta tensors, wrappers such as fake tensors: nothing was computed). For aten::_copy_from the direction:
  /// "ToHost", "ToCard", "BetweenCards", "OnCard".
  std::string place;
  /// A kernel is registered for that place; otherwise the operator was composed of its children.
  bool kernel = false;
  uint64_t calls = 0;
  uint64_t bytes = 0;  // arguments plus results, each tensor by its elements
  std::vector<std::unique_ptr<CallNode>> children;
};

/// Watches all threads from now on, with an empty tree. What a kernel does on the host for its own purposes is left
/// out. Costs a few microseconds per call while it is on, nothing when it is off.
void start_call_tree();
void stop_call_tree();
/// A copy of what was seen since the last start; an empty root if there was none.
std::unique_ptr<CallNode> call_tree();

}  // namespace musa
