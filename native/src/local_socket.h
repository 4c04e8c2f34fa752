// The JavaScript class LocalSocket: a Unix datagram socket with an abstract name, which carries descriptors.
#pragma once
#include <napi.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace roce {

/// The descriptor of a LocalSocket; closed with its last owner.
class LocalDescriptor : public std::enable_shared_from_this<LocalDescriptor> {
 public:
  explicit LocalDescriptor(int fd) : fd_(fd) {}
  ~LocalDescriptor() { close(); }
  LocalDescriptor(const LocalDescriptor&) = delete;
  LocalDescriptor& operator=(const LocalDescriptor&) = delete;
  /// -1 once closed.
  int fd() const { return fd_; }
  void close();
  /// Has a thread take the message that waits first, and discard it with its descriptors: the release of the last descriptor of another
  /// user's file may wait for as long as he likes (a TCP socket with SO_LINGER), whether it was received or not.
  void discard();
  /// Nobody else may take messages.
  bool discarding() const { return discarding_; }

 private:
  int fd_;
  std::atomic<bool> discarding_{false};
};

class LocalSocket : public Napi::ObjectWrap<LocalSocket> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit LocalSocket(const Napi::CallbackInfo& info);

  /// The descriptor of a JavaScript value, nullptr if that is no LocalSocket.
  static std::shared_ptr<LocalDescriptor> from(Napi::Env env, Napi::Value value);

 private:
  /// Descriptors that one message carries at most; the kernel takes 253 (SCM_MAX_FD).
  static constexpr uint32_t kMostDescriptors = 64;

  void allowDescriptors(const Napi::CallbackInfo& info);
  Napi::Value send(const Napi::CallbackInfo& info);
  Napi::Value receive(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  std::shared_ptr<LocalDescriptor> socket_;
};

}  // namespace roce
