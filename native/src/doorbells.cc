#include "doorbells.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "arguments.h"
#include "callback.h"
#include "udp_socket.h"

namespace roce {

void Doorbells::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Doorbells", DefineClass(env, "Doorbells",
                                       {
                                           InstanceMethod<&Doorbells::add>("add"),
                                           InstanceMethod<&Doorbells::remove>("remove"),
                                           InstanceMethod<&Doorbells::close>("close"),
                                       }));
}

Doorbells::Doorbells(const Napi::CallbackInfo& info) : ObjectWrap(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  if (!info[0].IsFunction()) throw typeError(env, "onRing must be a function");
  onRing_ = Napi::Persistent(info[0].As<Napi::Function>());
  try {
    waker_.emplace(
        env,
        [](void* self, uint32_t wake) {
          auto* doorbells = static_cast<Doorbells*>(self);
          callFromLoop(doorbells->env_, *doorbells, doorbells->onRing_, wake);
        },
        this);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
  waker_->setRef(false);
  waker_->start();
  Ref();  // It is called from the loop, whether JavaScript holds it or not.
}

Doorbells::~Doorbells() {
  // The watch goes before the descriptors. The environment may be going: nothing here may need JavaScript.
  waker_.reset();
  for (const int fd : descriptors_) ::close(fd);
}

/// add(): the descriptor of a new eventfd. It is never read from: who shares it could make a read wait.
Napi::Value Doorbells::add(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!waker_) throw rangeError(env, "the doorbells are closed");
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw systemError(env, errno, "eventfd");
  try {
    waker_->watchWrites(fd);
  } catch (const SystemFailure& failure) {
    ::close(fd);
    throw systemError(env, failure.errnum, failure.syscall);
  }
  descriptors_.insert(fd);
  return Napi::Number::New(env, fd);
}

/// remove(fd): no more wakes by a descriptor of `add`, which is closed. False for another one.
Napi::Value Doorbells::remove(const Napi::CallbackInfo& info) {
  const int fd = static_cast<int>(integerArgument(info, 0, "fd", 0x7fff'ffff));
  if (descriptors_.erase(fd) == 0) return Napi::Boolean::New(info.Env(), false);
  // Other processes have the file: to close the descriptor alone would leave the watch.
  waker_->unwatch(fd);
  ::close(fd);
  return Napi::Boolean::New(info.Env(), true);
}

void Doorbells::close(const Napi::CallbackInfo&) {
  if (!waker_) return;
  waker_.reset();
  for (const int fd : descriptors_) ::close(fd);
  descriptors_.clear();
  onRing_.Reset();
  Unref();
}

}  // namespace roce
