// The processor that this thread shares with others: letting them run, coming before them at a wake, and waking them.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>

#include "addon.h"
#include "arguments.h"

namespace roce {
namespace {

int64_t nanoseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// yieldProcessor(): sched_yield; the microseconds that it took, a whole number.
Napi::Value yieldProcessor(const Napi::CallbackInfo& info) {
  const int64_t start = nanoseconds();
  sched_yield();
  return Napi::Number::New(info.Env(), static_cast<int32_t>((nanoseconds() - start) / 1000));
}

/// processor(): the number of this thread's processor, for now.
Napi::Value processor(const Napi::CallbackInfo& info) { return Napi::Number::New(info.Env(), sched_getcpu()); }

/// struct sched_attr as far as the first version of the system call has it: glibc of Debian 12 has no declaration.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

/// setSlice(microseconds): the time that the scheduler gives this thread in one piece; 0: its default. Policy and nice value stay.
/// False where the kernel refuses.
Napi::Value setSlice(const Napi::CallbackInfo& info) {
  const uint32_t microseconds = integerArgument(info, 0, "microseconds", 100'000);
  Attributes attributes;
  bool done = syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
  if (done) {
    attributes.size = sizeof attributes;
    attributes.runtime = uint64_t{microseconds} * 1000;
    // Of real-time policies the same words mean something else.
    done = attributes.policy == SCHED_OTHER && syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
  }
  return Napi::Boolean::New(info.Env(), done);
}

/// wakeWaiting(words, index): wakes the threads of other processes that wait at a word of memory that they share.
void wakeWaiting(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Words words = wordsArgument(info, 0, "words");
  const uint32_t index = integerArgument(info, 1, "index", 0x7fff'ffff);
  if (index >= words.length) throw rangeError(env, "index is not in words");
  syscall(SYS_futex, words.data + index, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

void exportProcessor(Napi::Env env, Napi::Object exports) {
  exports.Set("yieldProcessor", Napi::Function::New<yieldProcessor>(env, "yieldProcessor"));
  exports.Set("processor", Napi::Function::New<processor>(env, "processor"));
  exports.Set("setSlice", Napi::Function::New<setSlice>(env, "setSlice"));
  exports.Set("wakeWaiting", Napi::Function::New<wakeWaiting>(env, "wakeWaiting"));
}

}  // namespace roce
