// The JavaScript class Doorbells: eventfds that other processes write to, to wake the event loop.
#pragma once
#include <napi.h>

#include <optional>
#include <set>

#include "waker.h"

namespace roce {

class Doorbells : public Napi::ObjectWrap<Doorbells> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Doorbells(const Napi::CallbackInfo& info);
  ~Doorbells() override;

 private:
  Napi::Value add(const Napi::CallbackInfo& info);
  Napi::Value remove(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  napi_env env_;
  std::optional<Waker> waker_;
  std::set<int> descriptors_;
  Napi::FunctionReference onRing_;
};

}  // namespace roce
