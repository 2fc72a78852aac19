#include "backend/graph/sequence.h"

#include <c10/util/Exception.h>

#include "backend/generator.h"
#include "backend/graph/recorder.h"
#include "backend/runtime/stream.h"
#include "musart/musart_capture.h"

namespace musa::graph {

namespace {

Recorder* recorder_of(const MusaGenerator& generator) {
  if (musaSimCaptureCount() == 0) {
    return nullptr;
  }
  return static_cast<Recorder*>(musaSimCaptureOwner(current_native_stream(generator.device().index())));
}

}  // namespace

size_t follow_marks(std::vector<SequenceMark>& marks, size_t next, int node) {
  for (; next < marks.size() && marks[next].before <= node; ++next) {
    SequenceMark& mark = marks[next];
    auto* generator = mark.generator.get<MusaGenerator>();
    if (mark.target.has_value()) {
      generator->move_to(marks[*mark.target].offset);
    } else {
      mark.offset = generator->position().offset;
    }
  }
  return next;
}

std::optional<uint64_t> mark_sequence(const MusaGenerator& generator) {
  Recorder* recorder = recorder_of(generator);
  return recorder == nullptr ? std::nullopt : std::optional<uint64_t>(recorder->mark_sequence(generator));
}

bool return_to_mark(const MusaGenerator& generator, uint64_t offset) {
  Recorder* recorder = recorder_of(generator);
  if (recorder != nullptr) {
    recorder->return_to_mark(generator, offset);
  }
  return recorder != nullptr;
}

bool is_captured(const MusaGenerator& generator) { return recorder_of(generator) != nullptr; }

}  // namespace musa::graph
