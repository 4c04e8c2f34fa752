// The JavaScript class InterfaceWatcher: what happens to a network interface.
#pragma once
#include <napi.h>

#include <optional>

#include "route_events.h"
#include "waker.h"

namespace roce {

class InterfaceWatcher : public Napi::ObjectWrap<InterfaceWatcher> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit InterfaceWatcher(const Napi::CallbackInfo& info);
  ~InterfaceWatcher() override;

 private:
  Napi::Value read(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  napi_env env_;
  std::optional<RouteEvents> events_;
  std::optional<Waker> waker_;
  Napi::FunctionReference onWake_;
};

}  // namespace roce
