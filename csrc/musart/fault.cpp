#include "musart/fault.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "musart/memory.h"
#include "musart/runtime.h"

namespace musart {
namespace {

// Everything below runs in a signal handler: no lock is waited for, nothing is allocated.

std::atomic<void (*)()> print_stack{nullptr};
std::atomic<int (*)(const void*, const void**, size_t*)> block_lookup{nullptr};
std::atomic<bool> reported{false};
struct sigaction previous_segv;
struct sigaction previous_bus;

class Line {
 public:
  Line& text(const char* piece) {
    while (*piece != '\0' && used_ < sizeof buffer_ - 1) buffer_[used_++] = *piece++;
    return *this;
  }

  Line& number(uint64_t value, unsigned base = 10) {
    char digits[24];
    int count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    while (count > 0 && used_ < sizeof buffer_ - 1) buffer_[used_++] = digits[--count];
    return *this;
  }

  Line& address(uintptr_t value) { return text("0x").number(value, 16); }

  void print() {
    buffer_[used_++] = '\n';
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, buffer_, used_);
  }

 private:
  char buffer_[512];
  size_t used_ = 0;
};

void describe_block(Line& line, uintptr_t address) {
  const void* block = nullptr;
  uintptr_t start = 0;
  size_t size = 0;
  if (find_block(reinterpret_cast<void*>(address), &block, &size)) {
    start = reinterpret_cast<uintptr_t>(block);
  } else if (!find_allocation_now(address, &start, &size)) {
    line.text("no live block");
    return;
  }
  line.text("byte ").number(address - start).text(" of the block of ").number(size).text(" bytes at ").address(start);
}

void report(uintptr_t address) {
  const auto* pointer = reinterpret_cast<const void*>(address);
  const bool device_side = is_device_pointer(pointer);
  const uintptr_t device_address = device_side ? address : reinterpret_cast<uintptr_t>(to_device(pointer));
  Line line;
  line.text("torch_musa_sim: ");
  line.text(
      device_side ? "host code touched device memory at " : "a kernel touched device memory that isn't there at ");
  line.address(device_address).text(": card musa:");
  line.number(static_cast<uint64_t>(device_of(reinterpret_cast<void*>(device_address)))).text(", ");
  if (state.load() == State::kForked) {
    line.text("in a child forked after the device was used; use the 'spawn' start method");
  } else {
    describe_block(line, device_address);
    if (device_side) line.text("; the host can't read it, copy the tensor with .cpu() first");
  }
  line.print();
  if (const auto callback = print_stack.load()) callback();
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = signal == SIGBUS ? previous_bus : previous_segv;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The instruction runs again and ends the process as if no handler had been there.
    struct sigaction fatal = {};
    fatal.sa_handler = SIG_DFL;
    sigaction(signal, &fatal, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by kill(): nothing would run again
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const auto* pointer = info->si_addr;
  const bool ours = info->si_code > 0 && (is_device_pointer(pointer) || is_alias_pointer(pointer));
  if (ours && !reported.exchange(true)) report(address);
  pass_on(signal, info, context);
}

}  // namespace

bool find_block(const void* address, const void** block, size_t* size) {
  const auto lookup = block_lookup.load();
  return lookup != nullptr && lookup(address, block, size) != 0;
}

void install_fault_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

}  // namespace musart

extern "C" {

void musaSimSetFaultCallback(void (*print_stack)(void)) { musart::print_stack.store(print_stack); }

void musaSimSetBlockLookup(int (*lookup)(const void* address, const void** block, size_t* size)) {
  musart::block_lookup.store(lookup);
}

}  // extern "C"
