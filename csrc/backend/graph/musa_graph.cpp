#include "backend/graph/musa_graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "backend/bridge/below_autograd.h"
#include "backend/generator.h"
#include "backend/graph/drawing.h"
#include "backend/graph/interception.h"
#include "backend/graph/recorder.h"
#include "backend/graph/refusal.h"
#include "backend/runtime/allocator/private_pools.h"
#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/threads.h"

namespace musa::graph {

namespace {

std::atomic<uint64_t> next_id{1};
std::atomic<int64_t> live_executables{0};

// Executables are a resource of the driver: torch_musa's programs rotate theirs because of it.
void count_executable() {
  static const int64_t limit = musaSimSettingInt("TORCH_MUSA_SIM_GRAPH_LIMIT");
  const int64_t live = live_executables.fetch_add(1) + 1;
  if (limit > 0 && live > limit) {
    live_executables.fetch_sub(1);
    TORCH_CHECK(
        false, "MUSA error: ", limit,
        " graphs are instantiated, which is as many as the driver keeps. Call reset() on graphs that are no longer "
        "replayed, or delete them; TORCH_MUSA_SIM_GRAPH_LIMIT sets the limit (0: none).");
  }
}

musaStreamCaptureMode runtime_mode(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return musaStreamCaptureModeThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return musaStreamCaptureModeRelaxed;
    case at::GraphCaptureMode::Default:
    case at::GraphCaptureMode::Global:
      break;
  }
  return musaStreamCaptureModeGlobal;
}

}  // namespace

MusaGraph::MusaGraph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}

MusaGraph::~MusaGraph() {
  try {
    reset();
  } catch (const std::exception& error) {
    TORCH_WARN("a MUSA graph was deleted during its capture: ", error.what());
  }
}

void MusaGraph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) {
  ensure_initialized();
  TORCH_CHECK(
      state_ == State::kEmpty,
      "This MUSAGraph instance already owns a captured graph. To capture a new graph, create a new instance or call "
      "reset().");
  const c10::Stream stream = current_stream();
  TORCH_CHECK(
      stream.id() != 0,
      "MUSA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
      "default stream.)");
  install_interception();
  card_ = stream.device_index();
  stream_id_ = stream.id();
  pool_ = pool == c10::MempoolId_t{0, 0} ? new_pool_id(/*for_user=*/false) : pool;
  recorder_ = std::make_unique<Recorder>(card_);
  MUSA_CHECK(musaSimCaptureBegin(native_stream(stream), runtime_mode(mode), recorder_.get()));
  watching.fetch_add(1, std::memory_order_relaxed);
  state_ = State::kCapturing;
  const void* owner = recorder_.get();
  begin_allocate_to_pool(
      card_, pool_, [owner](musaStream_t asking) { return musaSimCaptureOwner(asking) == owner; }, RouteUse::kCapture);
  holds_pool_ = true;
  intercept_thread(true);
}

void MusaGraph::end_capture_of_thread() {
  intercept_thread(false);
  end_allocate_to_pool(card_, pool_);
  watching.fetch_sub(1, std::memory_order_relaxed);
  state_ = State::kEmpty;
  nodes_ = std::move(recorder_->nodes());
  marks_ = std::move(recorder_->marks());
}

void MusaGraph::capture_end() {
  TORCH_CHECK(state_ == State::kCapturing, "MUSAGraph::capture_end was called without a capture_begin before it.");
  const c10::Stream stream = current_stream(card_);
  TORCH_CHECK(stream.id() == stream_id_, "Capture must end on the same stream it began on.");
  const musaError_t status = musaSimCaptureEnd(native_stream(stream));
  if (status == musaErrorStreamCaptureWrongThread) {
    throw_runtime_error(status, "musaStreamEndCapture");
  }
  end_capture_of_thread();
  recorder_.reset();
  if (status != musaSuccess) {
    nodes_.clear();
    marks_.clear();
    release_pool();
    throw_runtime_error(status, "musaStreamEndCapture");
  }
  if (nodes_.empty()) {
    TORCH_WARN(
        "The MUSA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or "
        "stream.");
  }
  bytes_ = 0;
  for (const Node& node : nodes_) {
    bytes_ += node.cost.bytes;
  }
  state_ = State::kCaptured;
  id_ = next_id.fetch_add(1);
  if (!keep_graph_) {
    instantiate();
  }
}

void MusaGraph::instantiate() {
  TORCH_CHECK(
      state_ == State::kCaptured || state_ == State::kInstantiated,
      "Called MUSAGraph::instantiate without a preceding successful capture.");
  if (state_ == State::kCaptured) {
    count_executable();
    state_ = State::kInstantiated;
  }
}

void MusaGraph::replay() {
  const std::lock_guard<std::mutex> lock(replaying_);
  TORCH_CHECK(
      state_ == State::kCaptured || state_ == State::kInstantiated,
      "Called MUSAGraph::replay without a preceding successful capture.");
  if (state_ == State::kCaptured) {
    instantiate();
  }
  const c10::DeviceGuard on(c10::Device(kMusa, card_));
  const musaStream_t stream = current_native_stream(card_);
  if (musaSimCaptureOwner(stream) != nullptr) {
    refuse(stream, "MUSAGraph::replay", "a graph can't be launched into another one");
  }
  if (checks_inputs()) {
    refuse_stale_inputs();
  }
  int64_t start_ns = 0;
  MUSA_CHECK(musaSimGraphBegin(stream, &start_ns));
  try {
    MUSA_CHECK(musaSimGraphEnd(stream, start_ns, run_nodes(stream, start_ns), bytes_));
  } catch (...) {
    (void)musaSimGraphEnd(stream, start_ns, start_ns, 0);
    throw;
  }
}

int64_t MusaGraph::run_nodes(musaStream_t stream, int64_t start_ns) {
  const BelowAutograd state;
  const WithoutInterception plainly(kCaptureKey);
  const Watching memory;
  sync_thread_count();
  std::vector<int64_t> ends(nodes_.size());
  int64_t last = start_ns;
  torch::jit::Stack stack;
  size_t mark = 0;
  for (Node& node : nodes_) {
    mark = follow_marks(marks_, mark, node.number);
    int64_t start = start_ns;
    for (const int before : node.dependencies) {
      start = std::max(start, ends[static_cast<size_t>(before)]);
    }
    const musaStream_t workspace = node.card == card_ ? stream : current_native_stream(node.card);
    const int64_t end = node.run(stack, workspace, start);
    ends[static_cast<size_t>(node.number)] = end;
    last = std::max(last, end);
  }
  follow_marks(marks_, mark, static_cast<int>(nodes_.size()));
  return last;
}

bool MusaGraph::checks_inputs() const {
  static const bool always = musaSimSettingFlag("TORCH_MUSA_SIM_GRAPH_CHECK") != 0;
  return always || debug_ || check_inputs_;
}

void MusaGraph::refuse_stale_inputs() const {
  for (const Node& node : nodes_) {
    for (const ExternalInput& input : node.external) {
      const auto storage = input.storage.lock();
      const bool moved = storage && (storage->data() != input.address || storage->nbytes() < input.nbytes);
      TORCH_CHECK(
          storage && !moved, "MUSA graph: argument '", input.argument, "' of ", node.name, " (node ", node.number,
          ") is stale. Its memory at ", input.address, " (", input.nbytes, " bytes) was ",
          moved                                ? "resized or replaced"
              : block_size(input.address) != 0 ? "freed and given to another tensor"
                                               : "freed",
          " since the capture. Keep the tensors that a graph reads alive and in place, and copy_() new values into "
          "them.");
    }
  }
}

void MusaGraph::reset() {
  const std::lock_guard<std::mutex> lock(replaying_);
  if (state_ == State::kCapturing) {
    const c10::Stream stream(c10::Stream::UNSAFE, c10::Device(kMusa, card_), stream_id_);
    (void)musaSimCaptureEnd(native_stream(stream));
    end_capture_of_thread();
    recorder_.reset();
  }
  if (state_ == State::kInstantiated) {
    live_executables.fetch_sub(1);
  }
  state_ = State::kEmpty;
  nodes_.clear();
  marks_.clear();
  release_pool();
}

void MusaGraph::release_pool() {
  if (holds_pool_) {
    holds_pool_ = false;
    ::musa::release_pool(card_, pool_);
  }
}

c10::MempoolId_t MusaGraph::pool() const {
  TORCH_CHECK(
      state_ == State::kCaptured || state_ == State::kInstantiated,
      "Called MUSAGraph::pool() without a preceding successful capture.");
  return pool_;
}

void MusaGraph::debug_dump(const std::string& path) {
  if (!debug_ && !keep_graph_) {
    TORCH_WARN("MUSA Graphs debug not enabled, set with [graph].enable_debug_mode()");
    return;
  }
  TORCH_CHECK(
      state_ == State::kCaptured || state_ == State::kInstantiated,
      "Called MUSAGraph::debug_dump without a preceding successful capture.");
  std::ofstream file(path);
  file << drawing(nodes_);
  TORCH_CHECK(file.flush().good(), "MUSAGraph::debug_dump can't write to ", path);
}

void MusaGraph::register_generator_state(const at::Generator& generator) {
  // Every replay draws from the generators it was captured with, so there is nothing to keep.
  TORCH_CHECK(
      generator.defined() && generator.device().type() == kMusa, "Expected a '", kMusa,
      "' device type for generator but found '", generator.defined() ? generator.device().type() : c10::kCPU, "'");
}

uint64_t MusaGraph::raw_graph() const {
  TORCH_CHECK(keep_graph_, "You cannot access the raw graph of a MUSAGraph made without keep_graph=True.");
  TORCH_CHECK(
      state_ == State::kCaptured || state_ == State::kInstantiated,
      "You cannot access the raw graph of a MUSAGraph before capture_end.");
  return id_;
}

uint64_t MusaGraph::raw_executable() const {
  TORCH_CHECK(
      state_ == State::kInstantiated, "You cannot access the executable of a MUSAGraph before it is instantiated.");
  return id_;
}

bool is_current_stream_capturing() {
  if (musaSimIsInitialized() == 0 || musaSimCaptureCount() == 0) {
    return false;
  }
  return musaSimCaptureOwner(current_native_stream(current_device())) != nullptr;
}

}  // namespace musa::graph

namespace at {
REGISTER_GRAPH_IMPL(MUSA, musa::graph::MusaGraph)
}  // namespace at
