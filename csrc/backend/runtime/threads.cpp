#include "backend/runtime/threads.h"

#include <ATen/Parallel.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/autograd/graph_task.h>

#include <string>

namespace musa::detail {

constinit thread_local ThreadKind thread_kind = ThreadKind::kUnknown;

namespace {

/// The engine names its workers pt_autograd_<n>; nothing else tells them from a user's thread.
bool named_by_the_engine() { return c10::getThreadName().rfind("pt_autog", 0) == 0; }

}  // namespace

void sync_autograd_thread() {
  if (thread_kind == ThreadKind::kUnknown) {
    thread_kind = named_by_the_engine() ? ThreadKind::kAutograd : ThreadKind::kOther;
    if (thread_kind == ThreadKind::kOther) {
      return;
    }
  }
  thread_local int last_task = -1;
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != last_task) {
    last_task = task;
    at::init_num_threads();  // copies the process's setting to this thread
  }
}

}  // namespace musa::detail
