// The JavaScript class Capture: RoCE frames of a network interface.
#pragma once
#include <napi.h>

#include <optional>

#include "arguments.h"
#include "packet_ring.h"
#include "waker.h"

namespace roce {

class Capture : public Napi::ObjectWrap<Capture> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Capture(const Napi::CallbackInfo& info);
  ~Capture() override;

 private:
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void start(const Napi::CallbackInfo& info);
  void stop(const Napi::CallbackInfo& info);
  void finish(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  void expectOpen(Napi::Env env) const;
  /// Lets go of what keeps the object alive while it is started.
  void release();

  napi_env env_;
  std::string interface_;
  uint32_t snapLength_;
  /// The most that a frame can have: all of it, where long ones are kept whole.
  uint32_t mostCaptured_;
  std::optional<PacketRing> ring_;
  std::optional<Waker> waker_;
  Napi::FunctionReference onWake_;
  bool held_ = false;
};

}  // namespace roce
