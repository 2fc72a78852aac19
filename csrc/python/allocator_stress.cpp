// Random work on the allocator from many threads, for tests: Python is too slow to make threads meet often.
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

constexpr size_t kMostLive = 200;  // blocks per thread
constexpr size_t kMailbox = 64;    // blocks on their way to another thread
constexpr size_t kLeast = 2 * sizeof(char*);  // room for a mark at both ends

struct Piece {
  char* address;
  size_t bytes;
};

// A block that was handed out twice shows as a foreign mark at one of its ends.
void mark(const Piece& piece) {
  char* memory = static_cast<char*>(musart::to_alias(piece.address));
  std::memcpy(memory, &piece.address, sizeof piece.address);
  std::memcpy(memory + piece.bytes - sizeof piece.address, &piece.address, sizeof piece.address);
}

void check(const Piece& piece) {
  const char* memory = static_cast<char*>(musart::to_alias(piece.address));
  TORCH_CHECK(
      std::memcmp(memory, &piece.address, sizeof piece.address) == 0 &&
          std::memcmp(memory + piece.bytes - sizeof piece.address, &piece.address, sizeof piece.address) == 0 &&
          block_size(piece.address) >= piece.bytes,
      "the allocator gave a block away twice");
}

class Stress {
 public:
  Stress(c10::DeviceIndex device, uint64_t seed, int streams) : device_(device), seed_(seed) {
    for (int i = 0; i < streams; ++i) {
      streams_.push_back(native_stream(stream_from_pool(device)));
    }
  }

  int64_t run(int threads, int64_t operations) {
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([this, i, count = operations / threads + (i < operations % threads)] { work(i, count); });
    }
    for (std::thread& worker : workers) {
      worker.join();
    }
    for (const Piece& piece : mailbox_) {
      free_block(piece.address);
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return allocations_;
  }

 private:
  void work(int index, int64_t operations) {
    std::vector<Piece> mine;
    try {
      std::mt19937_64 random(seed_ + static_cast<uint64_t>(index));
      for (int64_t i = 0; i < operations; ++i) {
        const uint64_t draw = random();
        if (mine.empty() || (mine.size() < kMostLive && (draw & 1))) {
          mine.push_back(allocate(random()));
        } else {
          std::swap(mine[(draw >> 8) % mine.size()], mine.back());
          const Piece piece = mine.back();
          mine.pop_back();
          give_back(piece, draw >> 32);
        }
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = std::current_exception();
    }
    for (const Piece& piece : mine) {
      free_block(piece.address);
    }
  }

  Piece allocate(uint64_t draw) {
    // Most sizes from the bins, some from the small pool, few from the large one.
    const size_t limit = draw % 16 < 12 ? size_t{64} << 10 : draw % 16 < 15 ? size_t{1} << 20 : size_t{6} << 20;
    const size_t bytes = kLeast + (draw >> 8) % limit;
    const musaStream_t stream = streams_[(draw >> 4) % streams_.size()];
    const Piece piece{static_cast<char*>(allocate_block(bytes, device_, stream)), bytes};
    allocations_.fetch_add(1, std::memory_order_relaxed);
    mark(piece);
    return piece;
  }

  void give_back(Piece piece, uint64_t draw) {
    check(piece);
    if (draw % 16 == 0) {
      record_block_stream(piece.address, streams_[(draw >> 4) % streams_.size()]);
    }
    if ((draw >> 8) % 4 == 0) {  // let another thread free it
      const std::lock_guard<std::mutex> lock(mutex_);
      mailbox_.push_back(piece);
      if (mailbox_.size() <= kMailbox) {
        return;
      }
      std::swap(mailbox_[(draw >> 12) % mailbox_.size()], mailbox_.back());
      piece = mailbox_.back();
      mailbox_.pop_back();
    }
    free_block(piece.address);
  }

  const c10::DeviceIndex device_;
  const uint64_t seed_;
  std::vector<musaStream_t> streams_;
  std::atomic<int64_t> allocations_{0};
  std::mutex mutex_;
  std::vector<Piece> mailbox_;
  std::exception_ptr failure_;
};

/// Runs `operations` random allocations and frees spread over `threads` threads and `streams` streams of a card, frees
/// everything, and returns the number of allocations. Raises when a block was given away twice.
int64_t allocator_stress(int threads, int64_t operations, uint64_t seed, c10::DeviceIndex device, int streams) {
  TORCH_CHECK_VALUE(threads > 0 && operations > 0 && streams > 0, "threads, operations and streams must be positive");
  ensure_initialized();
  return Stress(resolve_device(device), seed, streams).run(threads, operations);
}

}  // namespace

void bind_allocator_stress(py::module_& module) {
  module.def("_allocator_stress", torch::wrap_pybind_function_no_gil(allocator_stress));
}

}  // namespace musa::python
