// Keeps a CPU kernel on the calling thread.
#pragma once

#include <omp.h>

namespace musa {

/// While it lives, CPU kernels called by this thread run on it alone. The OpenMP setting belongs to the thread, unlike
/// at::set_num_threads, which also changes what others start with.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace musa
