// The allocator's history and snapshots, in the form that torch.cuda.memory gives them.
#include <ATen/record_function.h>
#include <c10/core/AllocatorConfig.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/runtime/allocator/history.h"
#include "backend/runtime/allocator/private_pools.h"
#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/device.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch {

// Declared here, because torch/csrc/profiler/python/combined_traceback.h needs a JSON library that the wheel lacks.
TORCH_API std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& stacks);
TORCH_PYTHON_API void freeDeadCapturedTracebackFrames();

}  // namespace torch

namespace musa::python {
namespace {

// What the next stack is to hold.
bool with_cpp_frames = false;
bool with_compile_context = false;

std::string compile_context() {
  if (!PyGILState_Check()) {
    return "";  // a thread of C++ compiles nothing
  }
  try {
    const py::object id = py::module_::import("torch._guards").attr("CompileContext").attr("current_compile_id")();
    return id.is_none() ? "" : py::cast<std::string>(py::str(id));
  } catch (const py::error_already_set&) {
    return "";
  }
}

std::shared_ptr<c10::GatheredContext> take_stack(std::string* context) {
  if (!Py_IsInitialized()) {
    return nullptr;
  }
  if (with_compile_context) {
    *context = compile_context();
  }
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, with_cpp_frames);
}

// ---- ranges of record_function beside the allocations ----

void annotate(const at::RecordFunction& range, const char* stage) {
  record_annotation({{"name", range.name()}, {"stage", stage}});
}

void record_ranges(bool on) {
  static std::optional<at::CallbackHandle> handle;
  if (handle) {
    at::removeCallback(*handle);
    handle.reset();
  }
  if (on) {
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& range) -> std::unique_ptr<at::ObserverContext> {
              annotate(range, "START");
              return nullptr;
            },
            [](const at::RecordFunction& range, at::ObserverContext*) { annotate(range, "END"); })
            .scopes({at::RecordScope::USER_SCOPE}));
  }
}

constexpr const char* kActions[] = {"alloc",         "free_requested", "free_completed",
                                    "segment_alloc", "segment_free",   "segment_map",
                                    "segment_unmap", "snapshot",       "oom"};

uint32_t skipped(const std::vector<std::string>& actions) {
  uint32_t bits = 0;
  for (const std::string& action : actions) {
    const auto* found = std::find(std::begin(kActions), std::end(kActions), action);
    TORCH_CHECK_VALUE(
        found != std::end(kActions), "skip_actions: '", action,
        "' is no action; they are alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, "
        "segment_unmap, snapshot and oom.");
    bits |= 1U << (found - std::begin(kActions));
  }
  return bits;
}

/// `stacks`: 0 never, 1 of what is allocated, 2 also in the history of allocations, 3 also of frees.
void start(
    bool enabled, int stacks, bool cpp, size_t most_entries, bool clear, bool compile, bool ranges,
    const std::vector<std::string>& skip_actions) {
  HistoryOptions options;
  options.enabled = enabled;
  options.stacks = static_cast<RecordContext>(stacks);
  options.take_stack = stacks > 0 ? take_stack : nullptr;
  options.most_entries = most_entries;
  options.clear = clear;
  options.skipped_actions = skipped(skip_actions);
  with_cpp_frames = cpp;
  with_compile_context = compile;
  record_ranges(enabled && ranges);
  record_history(options);
}

// ---- snapshots ----

// Collects stacks, so that all are looked up at once; a list is filled when it is known.
class Frames {
 public:
  void add(py::dict entry, const std::shared_ptr<c10::GatheredContext>& context) {
    entry["frames"] = py::list();
    if (context) {
      stacks_.push_back(torch::getCapturedTracebackFromContext(context));
      entries_.push_back(std::move(entry));
      if (const auto& forward = stacks_.back()->forward_traceback()) {
        entries_.back()["forward_frames"] = *forward;
      }
    }
  }
  void fill() {
    const std::vector<py::object> found = torch::py_symbolize(stacks_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      entries_[i]["frames"] = found[i];
    }
  }

 private:
  std::vector<torch::CapturedTraceback*> stacks_;
  std::vector<py::dict> entries_;
};

py::list block_entries(const c10::CachingDeviceAllocator::SegmentInfo& segment, Frames& frames) {
  py::list blocks;
  size_t address = segment.address;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = address;
    entry["size"] = block.size;
    entry["requested_size"] = block.requested_size;
    entry["state"] = block.allocated ? "active_allocated" : (block.active ? "active_pending_free" : "inactive");
    frames.add(entry, block.context_when_allocated);
    blocks.append(std::move(entry));
    address += block.size;
  }
  return blocks;
}

py::dict segment_entry(const c10::CachingDeviceAllocator::SegmentInfo& segment, Frames& frames) {
  py::dict entry;
  entry["device"] = segment.device;
  entry["address"] = segment.address;
  entry["total_size"] = segment.total_size;
  entry["allocated_size"] = segment.allocated_size;
  entry["active_size"] = segment.active_size;
  entry["requested_size"] = segment.requested_size;
  entry["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
  entry["segment_type"] = segment.is_large ? "large" : "small";
  entry["segment_pool_id"] = segment.owner_private_pool_id;
  entry["is_expandable"] = segment.is_expandable;
  frames.add(entry, segment.context_when_allocated);
  entry["blocks"] = block_entries(segment, frames);
  return entry;
}

py::dict trace_entry(const TraceEntry& event, Frames& frames) {
  py::dict entry;
  entry["action"] = kActions[event.action_];
  entry[event.action_ == TraceEntry::OOM ? "device_free" : "addr"] = event.addr_;
  entry["size"] = event.size_;
  entry["stream"] = reinterpret_cast<uintptr_t>(event.stream_);
  entry["time_us"] = static_cast<int64_t>(event.time_.approx_t_) / 1000;
  entry["pool_id"] = event.mempool_;
  entry["compile_context"] = event.compile_context_;
  entry["user_metadata"] = event.user_metadata_;
  frames.add(entry, event.context_);
  return entry;
}

py::dict annotation_entry(const AnnotationEntry& annotation) {
  py::dict entry;
  entry["device"] = annotation.device_;
  entry["time_us"] = static_cast<int64_t>(annotation.time_.approx_t_) / 1000;
  for (const auto& [name, value] : annotation.metadata_) {
    entry[py::str(name)] = value;
  }
  return entry;
}

py::dict settings_entry() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  py::dict divisions;
  const std::vector<size_t>& all = Config::roundup_power2_divisions();
  for (size_t i = 0; i < all.size(); ++i) {
    divisions[py::str(std::to_string(size_t{1} << (i + 20)))] = all[i];
  }
  py::dict entry;
  entry["PYTORCH_MUSA_ALLOC_CONF"] = Config::last_allocator_settings();
  entry["max_split_size"] = static_cast<int64_t>(
      std::min<size_t>(Config::max_split_size(), static_cast<size_t>(std::numeric_limits<int64_t>::max())));
  entry["garbage_collection_threshold"] = Config::garbage_collection_threshold();
  entry["expandable_segments"] = Config::use_expandable_segments();
  entry["large_segment_size"] = Config::large_segment_size();
  entry["roundup_power2_divisions"] = std::move(divisions);
  return entry;
}

py::list segment_list(c10::MempoolId_t id, Frames& frames) {
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
  {
    const py::gil_scoped_release no_gil;
    segments = memory_segments(id);
  }
  py::list list;
  for (const auto& segment : segments) {
    list.append(segment_entry(segment, frames));
  }
  return list;
}

/// As torch.cuda.memory_snapshot().
py::list segments(c10::MempoolId_t id) {
  Frames frames;
  py::list list = segment_list(id, frames);
  frames.fill();
  return list;
}

/// As torch.cuda.memory._snapshot().
py::dict snapshot(c10::MempoolId_t id, bool include_traces) {
  Frames frames;
  const std::vector<std::vector<TraceEntry>> events = include_traces ? history(id) : decltype(history(id)){};
  py::list traces;
  for (size_t device = 0; device < static_cast<size_t>(device_count()); ++device) {
    py::list trace;
    if (device < events.size()) {
      for (const TraceEntry& event : events[device]) {
        trace.append(trace_entry(event, frames));
      }
    }
    traces.append(std::move(trace));
  }
  py::list notes;
  for (const AnnotationEntry& annotation : annotations()) {
    notes.append(annotation_entry(annotation));
  }
  py::dict result;
  result["segments"] = segment_list(id, frames);
  result["device_traces"] = std::move(traces);
  result["allocator_settings"] = settings_entry();
  result["external_annotations"] = std::move(notes);
  frames.fill();
  torch::freeDeadCapturedTracebackFrames();
  record_snapshot();
  return result;
}

py::object allocation_traceback(uintptr_t address) {
  const std::shared_ptr<c10::GatheredContext> context = stack_of(address);
  if (!context) {
    return py::none();
  }
  std::vector<torch::CapturedTraceback*> stacks{torch::getCapturedTracebackFromContext(context)};
  return torch::py_symbolize(stacks).front();
}

void attach_observer(const py::function& observer) {
  // Lives as long as the process: it may be called while the interpreter ends, and must not be released then.
  auto* kept = new py::function(observer);
  attach_out_of_memory_observer([kept](int64_t device, size_t requested, size_t total, size_t free) {
    if (Py_IsInitialized()) {
      const py::gil_scoped_acquire gil;
      (*kept)(device, requested, total, free);
    }
  });
}

}  // namespace

void bind_memory_history(py::module_& module) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  constexpr c10::MempoolId_t kDefault{0, 0};
  module.def("_record_memory_history", wrap_pybind_function(start));
  module.def("_is_history_enabled", wrap_pybind_function(is_history_recorded));
  module.def("_memory_segments", wrap_pybind_function(segments), py::arg("mempool_id") = kDefault);
  module.def(
      "_memory_snapshot", wrap_pybind_function(snapshot), py::arg("mempool_id") = kDefault,
      py::arg("include_traces") = true);
  module.def("_allocation_traceback", wrap_pybind_function(allocation_traceback));
  module.def("_attach_out_of_memory_observer", wrap_pybind_function(attach_observer));
  module.def("_set_memory_metadata", wrap_pybind_function(set_memory_metadata));
  module.def("_memory_metadata", wrap_pybind_function(memory_metadata));
}

}  // namespace musa::python
