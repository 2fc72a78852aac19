// torch.musa.MUSAGraph and torch.accelerator.Graph: a captured sequence of kernels that is launched as one.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Stream.h>

#include <memory>
#include <mutex>
#include <vector>

#include "backend/graph/node.h"
#include "backend/graph/sequence.h"
#include "musart/musart_capture.h"

namespace musa::graph {

class Recorder;

class MusaGraph final : public at::GraphImplInterface {
 public:
  explicit MusaGraph(const at::GraphImplArgs& args = {});
  ~MusaGraph() override;

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debug_ = true; }
  void debug_dump(const std::string& path) override;

  /// Replays check from now on that the tensors from outside are still where the capture has found them.
  void check_inputs(bool on) { check_inputs_ = on; }
  void register_generator_state(const at::Generator& generator);
  bool keep_graph() const { return keep_graph_; }
  /// Ids of the captured graph and of its executable, as torch.cuda hands out handles. Throw when there is none.
  uint64_t raw_graph() const;
  uint64_t raw_executable() const;
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  enum class State { kEmpty, kCapturing, kCaptured, kInstantiated };

  void end_capture_of_thread();
  void release_pool();
  void refuse_stale_inputs() const;
  bool checks_inputs() const;
  int64_t run_nodes(musaStream_t stream, int64_t start_ns);

  std::mutex replaying_;  // launches of one graph follow each other, as on a card
  const bool keep_graph_;
  bool debug_ = false;
  bool check_inputs_ = false;
  State state_ = State::kEmpty;
  c10::DeviceIndex card_ = 0;
  c10::StreamId stream_id_ = 0;
  c10::MempoolId_t pool_{0, 0};
  bool holds_pool_ = false;
  std::unique_ptr<Recorder> recorder_;
  std::vector<Node> nodes_;
  std::vector<SequenceMark> marks_;
  double bytes_ = 0;  // moved by all nodes
  uint64_t id_ = 0;
};

/// Whether the calling thread's current stream takes part in a capture. Initialises nothing.
bool is_current_stream_capturing();

}  // namespace musa::graph
