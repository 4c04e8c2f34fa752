#include "interface_watcher.h"

#include <net/if.h>

#include "arguments.h"
#include "callback.h"
#include "udp_socket.h"

namespace roce {
namespace {

constexpr const char* kKinds[] = {"up", "down", "gone", "added", "removed", "overrun"};

}  // namespace

void InterfaceWatcher::define(Napi::Env env, Napi::Object exports) {
  exports.Set("InterfaceWatcher", DefineClass(env, "InterfaceWatcher",
                                              {
                                                  InstanceMethod<&InterfaceWatcher::read>("read"),
                                                  InstanceMethod<&InterfaceWatcher::close>("close"),
                                              }));
}

InterfaceWatcher::InterfaceWatcher(const Napi::CallbackInfo& info) : ObjectWrap(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  const std::string interface = options.string("interface", nullptr);
  if (interface.empty() || interface.size() >= IF_NAMESIZE || interface.find('\0') != std::string::npos)
    throw rangeError(env, "interface must be a name of an interface");
  const Napi::Value onWake = options.get("onWake");
  if (!onWake.IsFunction()) throw typeError(env, "onWake must be a function");
  onWake_ = Napi::Persistent(onWake.As<Napi::Function>());
  try {
    events_.emplace(interface);
    waker_.emplace(
        env,
        [](void* self, uint32_t wake) {
          auto* watcher = static_cast<InterfaceWatcher*>(self);
          callFromLoop(watcher->env_, *watcher, watcher->onWake_, wake);
        },
        this);
    waker_->watch(events_->fd(), 0);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall, interface);
  }
  waker_->setRef(false);
  waker_->start();
  Ref();  // It is called from the loop, whether JavaScript holds it or not.
}

InterfaceWatcher::~InterfaceWatcher() {
  // The watch goes before the descriptor. The environment may be going: nothing here may need JavaScript.
  waker_.reset();
}

Napi::Value InterfaceWatcher::read(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto events = events_->take();
  Napi::Array list = Napi::Array::New(env, events.size());
  for (uint32_t i = 0; i < events.size(); i++) {
    Napi::Object object = Napi::Object::New(env);
    object.Set("kind", kKinds[events[i].kind]);
    if (events[i].kind == RouteEvent::added || events[i].kind == RouteEvent::removed)
      object.Set("address", endpointOf(events[i].address, 0, 0).text());
    list.Set(i, object);
  }
  return list;
}

void InterfaceWatcher::close(const Napi::CallbackInfo&) {
  if (!waker_) return;
  waker_.reset();
  events_->close();
  onWake_.Reset();
  Unref();
}

}  // namespace roce
