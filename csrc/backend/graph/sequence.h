// A generator's state read and set inside a capture, as checkpointing does to draw the same numbers twice. Nothing is
// drawn while it is captured, so that only a replay knows the place in the sequence: it notes it, and goes back to it.
#pragma once

#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace musa {
class MusaGenerator;
}

namespace musa::graph {

/// Before which node a replay notes the generator's place, or takes it to the place noted by mark `target`.
struct SequenceMark {
  int before;
  at::Generator generator;
  std::optional<size_t> target;
  uint64_t offset = 0;  // as the latest replay noted it
};

/// What marks before `node` ask for, from mark `next` on; returns the first one that isn't due.
size_t follow_marks(std::vector<SequenceMark>& marks, size_t next, int node);

/// Notes the generator's place when its card's current stream is being captured, and returns the offset that stands for
/// it in a state; empty otherwise.
std::optional<uint64_t> mark_sequence(const MusaGenerator& generator);
/// Goes back to the place for which `offset` stands. False when nothing is being captured. Throws for an offset that
/// doesn't come from this capture.
bool return_to_mark(const MusaGenerator& generator, uint64_t offset);
/// Whether the current stream of the generator's card is being captured. Initialises nothing.
bool is_captured(const MusaGenerator& generator);

}  // namespace musa::graph
