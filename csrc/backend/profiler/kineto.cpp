// The device's part of torch.profiler: a plug-in of the kineto inside torch.
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <utility>

#include "backend/profiler/recorder.h"
#include "backend/profiler/trace.h"

namespace musa::profiler {

namespace {

using libkineto::ActivityType;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    Recorder::instance().start();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    Recorder::instance().stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override { write(logger, nullptr); }
  // The bounds are those of the capture on the wall. Virtual time may run past them, and what did is shown, too.
  void processTrace(
      libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t /*start*/,
      int64_t /*end*/) override {
    write(logger, linked);
  }

  // One card could be named here; there may be several.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  // The last question that kineto asks, after it has given names of its own (GPU 0 .. 15) to the cards' rows. The last
  // name counts.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    if (logger_ != nullptr) {
      write_rows(events_, clocks_, *std::exchange(logger_, nullptr));
    }
    return std::move(trace_);
  }

  void pushCorrelationId(uint64_t id) override { Recorder::instance().push_op(id); }
  void popCorrelationId() override { Recorder::instance().pop_op(); }
  void pushUserCorrelationId(uint64_t id) override { Recorder::instance().push_annotation(id); }
  void popUserCorrelationId() override { Recorder::instance().pop_annotation(); }

 private:
  void write(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked) {
    events_ = Recorder::instance().take(&clocks_.wall_zero, &clocks_.virtual_zero);
    trace_ = write_activities(events_, clocks_, linked, logger);
    logger_ = &logger;
    status_ = libkineto::TraceStatus::READY;
  }

  std::vector<DeviceEvent> events_;
  Clocks clocks_{};
  libkineto::ActivityLogger* logger_ = nullptr;  // while kineto writes the trace
  std::unique_ptr<libkineto::CpuTraceBuffer> trace_;
};

class MusaProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& /*config*/) override {
    return types.contains(ActivityType::CONCURRENT_KERNEL) ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t /*start_ms*/, int64_t /*duration_ms*/, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "musa";
  const std::set<ActivityType> types_{
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
      ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
};

REGISTER_PRIVATEUSE1_PROFILER(MusaProfiler);

}  // namespace

}  // namespace musa::profiler
