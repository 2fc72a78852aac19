// The tensors of a captured operator: its node's, which own nothing, and the results that the program gets.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "backend/graph/node.h"
#include "backend/graph/rehearsal.h"

namespace musa::graph {

bool is_card(const at::Tensor& tensor);

/// Makes the tensors of one node: over the same memory as those of the program, but owning none of it.
class NodeTensors {
 public:
  explicit NodeTensors(c10::DispatchKey key) : key_(key) {}

  at::Tensor view(const at::Tensor& tensor);

 private:
  c10::Storage storage(const at::Tensor& tensor);

  c10::DispatchKey key_;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;
  std::map<const c10::StorageImpl*, c10::Storage> storages_;
};

/// An out= argument that the operator would resize gets its size now.
void resize_written(const Rehearsal& rehearsal);

/// Makes the results that a rehearsal has shown: arguments, views of arguments, new tensors.
class Results {
 public:
  Results(const Rehearsal& rehearsal, c10::Device card, Node& node, NodeTensors& tensors)
      : rehearsal_(rehearsal), card_(card), node_(node), tensors_(tensors) {}

  c10::IValue make(const c10::IValue& shown, size_t index);

 private:
  at::Tensor make(const at::Tensor& shown, size_t index, std::optional<size_t> element);

  const Rehearsal& rehearsal_;
  c10::Device card_;
  Node& node_;
  NodeTensors& tensors_;
  std::map<const c10::StorageImpl*, c10::Storage> fresh_;
};

}  // namespace musa::graph
