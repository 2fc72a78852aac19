// The threads that a kernel may use.
#pragma once

#include <stdint.h>

namespace mudnn {

/// A handle on the caller's thread pool. `run` calls body(context, begin, end) for ranges that cover 0 .. tasks once
/// each, on up to `threads` threads, and returns when all are done. What a task computes must not depend on the range
/// it comes in: results are the same for any number of threads.
struct Parallel {
  using Body = void (*)(void* context, int64_t begin, int64_t end);

  int threads;
  void (*run)(int64_t tasks, int64_t grain, Body body, void* context);

  /// body(begin, end) over 0 .. tasks, at least `grain` tasks a range (so that little work stays on one thread).
  template <class F>
  void for_each(int64_t tasks, int64_t grain, F&& body) const {
    if (threads <= 1 || tasks <= grain) {
      if (tasks > 0) {
        body(int64_t{0}, tasks);
      }
      return;
    }
    run(
        tasks, grain, [](void* context, int64_t begin, int64_t end) { (*static_cast<F*>(context))(begin, end); },
        &body);
  }
};

}  // namespace mudnn
