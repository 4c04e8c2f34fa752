// Wakes a loop that sleeps: one epoll descriptor over sockets and a timer, watched by libuv.
#pragma once
#include <node_api.h>

#include <cstdint>

namespace roce {

/// Why the loop was woken.
enum WakeEvent : uint32_t { kWakeReadable = 1, kWakeWritable = 2, kWakeTimer = 4 };

class Waker {
 public:
  /// Called from the event loop with a set of WakeEvents.
  using Callback = void (*)(void* context, uint32_t events);

  /// @throws SystemFailure
  Waker(napi_env env, Callback callback, void* context);
  ~Waker() { close(); }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  /// Wakes while that descriptor is readable. `token` comes back from `readable`. @throws SystemFailure
  void watch(int fd, uint32_t token);
  /// Wakes once for each time that the descriptor becomes readable, or is written to where it is (EPOLLET): nobody has to
  /// read from it. @throws SystemFailure
  void watchWrites(int fd);
  void unwatch(int fd);
  /// Wakes while that descriptor is writable; -1 for no more. A descriptor that is watched may be closed only after
  /// another call. Where the kernel takes no watch (EMFILE, ENOSPC), as `retryWrite`.
  void watchWrite(int fd);
  /// Reports kWakeWritable once a millisecond until `watchWrite` is called: for room that no descriptor reports.
  void retryWrite();
  /// Wakes once, in so many microseconds; Infinity for never.
  void setDeadline(double microseconds);

  /// Starts and stops the watch; a stopped waker holds no event loop.
  void start();
  void stop();
  bool started() const { return started_; }
  /// Whether a started waker keeps the event loop alive.
  void setRef(bool ref);
  /// For good; needed before descriptors that are watched go.
  void close();

  /// Fills `tokens` with those of the readable descriptors, without waiting. @returns how many
  uint32_t readable(uint32_t* tokens, uint32_t most);

 private:
  struct Handle;  // the uv_poll_t: lives until libuv has closed it
  void onPoll();
  /// Arms the timer for whatever is due first.
  void arm();

  Callback callback_;
  void* context_;
  Handle* handle_ = nullptr;
  int epoll_ = -1;
  int timer_ = -1;
  /// An epoll set of its own for the one descriptor that is watched for writing, which `epoll_` may have for reading.
  int writers_ = -1;
  int writable_ = -1;
  bool started_ = false;
  bool armed_ = false;
  /// CLOCK_MONOTONIC in nanoseconds.
  int64_t deadline_;
  int64_t retry_;
};

}  // namespace roce
