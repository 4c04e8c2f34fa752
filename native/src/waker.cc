#include "waker.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <limits>

#include "udp_socket.h"

namespace roce {
namespace {

constexpr uint64_t kTimerToken = uint64_t{1} << 32;
constexpr uint64_t kWriteToken = uint64_t{2} << 32;
constexpr int kEvents = 64;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kRetryNanoseconds = 1'000'000;

int64_t monotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

}  // namespace

// libuv closes handles later than we would like, and a worker's environment ends when it likes: the
// handle outlives the Waker, and an asynchronous cleanup hook makes the environment wait for it.
struct Waker::Handle {
  uv_poll_t poll{};
  Waker* owner = nullptr;
  napi_async_cleanup_hook_handle hook = nullptr;

  void close() {
    owner = nullptr;
    uv_poll_stop(&poll);
    uv_close(reinterpret_cast<uv_handle_t*>(&poll), [](uv_handle_t* handle) {
      auto* self = static_cast<Handle*>(handle->data);
      if (self->hook != nullptr) napi_remove_async_cleanup_hook(self->hook);
      delete self;
    });
  }
};

Waker::Waker(napi_env env, Callback callback, void* context) : callback_(callback), context_(context), deadline_(kNever), retry_(kNever) {
  uv_loop_t* loop = nullptr;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok) throw SystemFailure{ENOSYS, "napi_get_uv_event_loop"};
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  const int errnum = errno;
  if (epoll_ < 0 || timer_ < 0) {
    close();
    throw SystemFailure{errnum, epoll_ < 0 ? "epoll_create1" : "timerfd_create"};
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimerToken;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &event);

  handle_ = new Handle;
  handle_->owner = this;
  const int status = uv_poll_init(loop, &handle_->poll, epoll_);
  if (status != 0) {
    delete handle_;
    handle_ = nullptr;
    close();
    throw SystemFailure{-status, "uv_poll_init"};
  }
  handle_->poll.data = handle_;
  napi_add_async_cleanup_hook(
      env,
      [](napi_async_cleanup_hook_handle, void* argument) {
        auto* handle = static_cast<Handle*>(argument);
        // Already closing when the owner has gone first; its callback then removes the hook.
        if (handle->owner != nullptr) handle->owner->close();
      },
      handle_, &handle_->hook);
}

void Waker::close() {
  // The watch goes before the descriptor that it watches.
  if (handle_ != nullptr) handle_->close();
  handle_ = nullptr;
  started_ = false;
  for (const int fd : {epoll_, timer_, writers_})
    if (fd >= 0) ::close(fd);
  epoll_ = timer_ = writers_ = writable_ = -1;
}

void Waker::watch(int fd, uint32_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) throw SystemFailure{errno, "epoll_ctl"};
}

void Waker::watchWrites(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) throw SystemFailure{errno, "epoll_ctl"};
}

void Waker::unwatch(int fd) {
  if (epoll_ >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void Waker::watchWrite(int fd) {
  if (epoll_ < 0) return;
  if (retry_ != kNever) {
    retry_ = kNever;
    arm();
  }
  epoll_event event{};
  event.events = EPOLLOUT;
  // The number may stand for another file by now: then the kernel has forgotten the one that it stood for.
  if (fd >= 0 && fd == writable_ && epoll_ctl(writers_, EPOLL_CTL_MOD, fd, &event) == 0) return;
  if (writable_ >= 0) epoll_ctl(writers_, EPOLL_CTL_DEL, writable_, nullptr);
  writable_ = -1;
  if (fd < 0) return;
  if (writers_ < 0) {
    const int created = epoll_create1(EPOLL_CLOEXEC);
    epoll_event readable{};
    readable.events = EPOLLIN;
    readable.data.u64 = kWriteToken;
    if (created >= 0 && epoll_ctl(epoll_, EPOLL_CTL_ADD, created, &readable) == 0)
      writers_ = created;
    else if (created >= 0)
      ::close(created);
  }
  if (writers_ >= 0 && epoll_ctl(writers_, EPOLL_CTL_ADD, fd, &event) == 0)
    writable_ = fd;
  else
    retryWrite();
}

void Waker::retryWrite() {
  if (epoll_ < 0) return;
  if (writable_ >= 0) epoll_ctl(writers_, EPOLL_CTL_DEL, writable_, nullptr);
  writable_ = -1;
  retry_ = monotonicNanoseconds() + kRetryNanoseconds;
  arm();
}

void Waker::setDeadline(double microseconds) {
  if (timer_ < 0) return;
  const bool never = microseconds >= 1e15;  // thirty years
  if (never && deadline_ == kNever) return;
  deadline_ =
      never ? kNever : monotonicNanoseconds() + static_cast<int64_t>(std::ceil(std::max(microseconds, 0.0) * 1e3));
  arm();
}

void Waker::arm() {
  const int64_t at = std::min(deadline_, retry_);
  itimerspec spec{};
  if (at == kNever) {
    if (!armed_) return;
  } else {
    spec.it_value.tv_sec = at / kSecond;
    spec.it_value.tv_nsec = at % kSecond;
  }
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
  armed_ = at != kNever;
}

void Waker::start() {
  if (handle_ == nullptr || started_) return;
  started_ = true;
  uv_poll_start(&handle_->poll, UV_READABLE, [](uv_poll_t* poll, int, int) {
    auto* handle = static_cast<Handle*>(poll->data);
    if (handle->owner != nullptr) handle->owner->onPoll();
  });
}

void Waker::stop() {
  if (handle_ == nullptr || !started_) return;
  started_ = false;
  uv_poll_stop(&handle_->poll);
}

void Waker::setRef(bool ref) {
  if (handle_ == nullptr) return;
  auto* handle = reinterpret_cast<uv_handle_t*>(&handle_->poll);
  ref ? uv_ref(handle) : uv_unref(handle);
}

void Waker::onPoll() {
  epoll_event events[kEvents];
  const int number = epoll_wait(epoll_, events, kEvents, 0);
  uint32_t wake = 0;
  for (int i = 0; i < number; i++) {
    if (events[i].data.u64 == kTimerToken) {
      uint64_t expirations;
      if (read(timer_, &expirations, sizeof expirations) <= 0) continue;
      armed_ = false;
      const int64_t now = monotonicNanoseconds();
      if (now >= deadline_) {
        wake |= kWakeTimer;
        deadline_ = kNever;
      }
      if (now >= retry_) {
        wake |= kWakeWritable;
        retry_ = now + kRetryNanoseconds;
      }
      arm();
    } else {
      wake |= events[i].data.u64 == kWriteToken ? kWakeWritable : kWakeReadable;
    }
  }
  if (wake != 0) callback_(context_, wake);
}

uint32_t Waker::readable(uint32_t* tokens, uint32_t most) {
  epoll_event events[kEvents];
  const int number = epoll_wait(epoll_, events, kEvents, 0);
  uint32_t found = 0;
  for (int i = 0; i < number && found < most; i++)
    if (events[i].data.u64 <= 0xffff'ffffu) tokens[found++] = static_cast<uint32_t>(events[i].data.u64);
  return found;
}

}  // namespace roce
