#include "musart/race_report.h"

#include <stdarg.h>
#include <stdio.h>

#include <atomic>

#include "musart/fault.h"
#include "musart/stream.h"

namespace musart {
namespace {

std::atomic<void (*)(musaStream_t, char*, size_t)> namer{nullptr};

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string memory_line(Range range) {
  const auto* address = reinterpret_cast<const void*>(range.begin);
  std::string line = format("\n  memory:  %zu bytes at %p", static_cast<size_t>(range.end - range.begin), address);
  if (!is_device_pointer(address)) return line + " (page-locked memory of the host)";
  const void* block = nullptr;
  size_t size = 0;
  if (find_block(address, &block, &size)) line += format(", block of %zu bytes at %p", size, block);
  return line + format(" on musa:%d", device_of(address));
}

std::string party_line(const char* role, const char* op, bool writes, const std::string& stream) {
  return format("\n  %-9s%s %s on %s", role, op, writes ? "writes" : "reads", stream.c_str());
}

constexpr const char* kEnd = "\n(TORCH_MUSA_SIM_STRICT reports what hardware may do wrong silently; docs/strict.md)";

}  // namespace

std::string name_of(const Actor& actor) {
  char text[128] = "";
  const auto name = namer.load();
  const bool same = actor.handle != nullptr && actor.handle->alive.load() && actor.handle->id == actor.id;
  if (name != nullptr && same) name(actor.handle, text, sizeof text);
  if (*text != '\0') return text;
  return actor.id == 0 ? format("the default stream of musa:%d", actor.card)
                       : format("stream %lld of musa:%d", static_cast<long long>(actor.id), actor.card);
}

std::string report_conflict(
    const Conflict& conflict, const Actor& earlier, const Later& later, const Actor& owner, uint64_t known) {
  const bool has_earlier = conflict.earlier.actor >= 0;
  const char* earlier_op = has_earlier ? conflict.earlier.op->c_str() : "";
  const std::string earlier_name = has_earlier ? name_of(earlier) : "";
  const std::string later_name = name_of(later.stream);
  std::string text;
  std::string missing;
  if (conflict.freed) {
    text = format("%s %s memory after it was freed.", later.op, later.writes ? "writes" : "reads");
    missing = "keep the tensor alive for as long as something reaches its memory; a view over a raw pointer doesn't";
  } else if (conflict.earlier.life == conflict.life) {
    text = format("%s and %s touch the same memory and nothing orders them.", earlier_op, later.op);
    missing =
        known > 0 ? format("what %s has waited for ends before %s was launched. ", later_name.c_str(), earlier_op) +
            format("Record the event after %s (or wait_stream after it), and wait for it before %s", earlier_op,
                   later.op)
                  : format("%s has never waited for %s. ", later_name.c_str(), earlier_name.c_str()) +
            format("Before %s, call later.wait_stream(earlier), or record an event after %s and wait_event for it",
                   later.op, earlier_op);
  } else if (owner.handle == later.stream.handle) {
    text = format("%s reuses memory that %s may still be using.", later.op, earlier_op);
    missing =
        "the block was freed while another stream than its own was using it. Call "
        "tensor.record_stream(earlier) before the last reference goes, or let " +
        later_name + " wait for the earlier stream before that";
  } else {
    text = format("%s reuses memory that %s may still be using.", later.op, earlier_op);
    missing = format(
        "the memory was allocated on %s, in whose order it may be reused, and %s hasn't waited for that stream. "
        "Call later.wait_stream(allocating) before the first use",
        name_of(owner).c_str(), later_name.c_str());
  }
  if (has_earlier) text += party_line("earlier:", earlier_op, conflict.earlier_wrote, earlier_name);
  text += party_line("later:", later.op, later.writes, later_name);
  text += memory_line(conflict.range);
  return text + "\n  missing: " + missing + kEnd;
}

std::string report_host(const DeferredCopy& copy, const Actor& stream, const char* host_op, bool touched) {
  const char* op = copy.op->c_str();
  std::string text;
  if (!touched) {
    text = format("the host reads for %s what %s (non_blocking) hasn't been waited to write.", host_op, op);
  } else if (copy.copy.to_host) {
    text = format("the host has written to the target of %s (non_blocking) before the copy was waited for.", op);
  } else {
    text = format("the host has changed the source of %s (non_blocking) before the copy was waited for.", op);
  }
  text += party_line("copy:", op, true, name_of(stream));
  text += memory_line(copy.host());
  return text + "\n  missing: synchronize the stream, or an event recorded after the copy, before the host touches " +
      "the page-locked memory" + kEnd;
}

}  // namespace musart

extern "C" void musaSimSetStreamNamer(void (*name)(musaStream_t stream, char* text, size_t size)) {
  musart::namer.store(name);
}
