// One capture under way: turns the operators it is given into nodes.
#pragma once

#include <c10/core/Stream.h>

#include <map>
#include <mutex>
#include <vector>

#include "backend/graph/node.h"
#include "backend/graph/operator_class.h"
#include "backend/graph/rehearsal.h"
#include "backend/graph/sequence.h"

namespace musa::graph {

class Recorder {
 public:
  explicit Recorder(c10::DeviceIndex card) : card_(card) {}

  /// Executes, records or refuses an operator on a captured stream and replaces its arguments on `stack` by results.
  void handle(
      const c10::OperatorHandle& op, const OperatorClass& kind, c10::DispatchKeySet keys, musaStream_t stream,
      torch::jit::Stack* stack);

  /// A node that keeps `stream` busy and does nothing.
  void add_pause(const char* name, musaStream_t stream, const musaSimCost& cost);

  /// Memory handed out for the capture: it gets the poison pattern, and is the graph's own.
  void note_allocation(void* alias, size_t nbytes);

  /// Places in the sequences of generators: see sequence.h.
  uint64_t mark_sequence(const MusaGenerator& generator);
  void return_to_mark(const MusaGenerator& generator, uint64_t offset);

  std::vector<Node>& nodes() { return nodes_; }
  std::vector<SequenceMark>& marks() { return marks_; }

 private:
  void record(const c10::OperatorHandle& op, const OperatorClass& kind, torch::jit::Stack* stack);
  void record_copy(const Plan& plan, torch::jit::Stack* stack);
  void add(Node node, musaStream_t stream);
  void add_external(Node& node, const at::Tensor& tensor, const std::string& argument);
  bool owns(const void* alias);

  c10::DeviceIndex card_;
  std::mutex mutex_;
  std::vector<Node> nodes_;
  std::vector<SequenceMark> marks_;
  std::map<uintptr_t, size_t> owned_;  // alias address -> bytes, of everything handed out so far
};

/// Captures a pause of what `cost` takes. False when `stream` isn't captured.
bool record_pause(const char* name, musaStream_t stream, const musaSimCost& cost);

}  // namespace musa::graph
