// The JavaScript class Socket: a UDP socket with its options and groups.
#pragma once
#include <napi.h>

#include <memory>

#include "udp_socket.h"

namespace roce {

class Socket : public Napi::ObjectWrap<Socket> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Socket(const Napi::CallbackInfo& info);

  /// The socket under a JavaScript value, nullptr if that is no Socket.
  static std::shared_ptr<UdpSocket> from(Napi::Env env, Napi::Value value);

 private:
  void joinGroup(const Napi::CallbackInfo& info) { setMembership(info, true); }
  void leaveGroup(const Napi::CallbackInfo& info) { setMembership(info, false); }
  Napi::Value duplicate(const Napi::CallbackInfo& info);
  void steer(const Napi::CallbackInfo& info);
  void mute(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  void setMembership(const Napi::CallbackInfo& info, bool join);

  std::shared_ptr<UdpSocket> socket_;
};

}  // namespace roce
