// The JavaScript class ProcessMemory: another process's memory, read and written by a descriptor of its own /proc/self/mem.
#pragma once
#include <napi.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace roce {

/// A process whose memory is accessed: what the watcher sees of it.
struct WatchedProcess {
  explicit WatchedProcess(pid_t pid);
  ~WatchedProcess();
  const pid_t pid;
  /// -1 where there is none.
  const int handle;
  /// Number of the access at hand; 0 between accesses.
  std::atomic<uint64_t> access{0};
  /// Accesses so far: of the thread that makes them.
  uint64_t accesses = 0;
  /// Of the watcher: the access that it saw last, and how often it saw it again.
  uint64_t seen = 0;
  int looks = 0;
};

/// The descriptor is bound to the memory and not to the process: after exec, which gives the process another memory, nothing is read or
/// written by it (proc_mem_open of the kernel keeps the mm_struct).
class ProcessMemory : public Napi::ObjectWrap<ProcessMemory> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit ProcessMemory(const Napi::CallbackInfo& info);
  ~ProcessMemory() override;

 private:
  Napi::Value pull(const Napi::CallbackInfo& info);
  Napi::Value push(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  void release();

  int fd_ = -1;
  std::shared_ptr<WatchedProcess> process_;
};

}  // namespace roce
