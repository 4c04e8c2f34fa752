#include "socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <net/if.h>

#include <vector>

#include "arguments.h"

namespace roce {
namespace {

constexpr napi_type_tag kTag{0x9d9b'5f1e'6c0a'4b7eu, 0x8f3d'2a61'c4e7'1b05u};

constexpr uint32_t kMostBuffer = 1u << 30;

Endpoint endpointArgument(Napi::Env env, bool v6, const std::string& address, uint16_t port) {
  Endpoint endpoint;
  if (!parseEndpoint(v6, address, port, endpoint))
    throw typeError(env, "address must be an IPv" + std::string(v6 ? "6" : "4") + " address");
  return endpoint;
}

using Read = Napi::Value (*)(Napi::Env env, const UdpSocket& socket);

/// A getter. Not one of node-addon-api's: those take whatever object they are called on for a Socket.
template <Read read>
Napi::ClassPropertyDescriptor<Socket> property(const char* name) {
  const napi_callback getter = [](napi_env env, napi_callback_info raw) -> napi_value {
    try {
      const Napi::CallbackInfo info(env, raw);
      if (const auto socket = Socket::from(env, info.This())) return read(env, *socket);
      napi_throw_type_error(env, "ERR_INVALID_THIS", "Illegal invocation");
    } catch (const Napi::Error& error) {
      error.ThrowAsJavaScriptException();
    }
    return nullptr;
  };
  return napi_property_descriptor{name, nullptr, nullptr, getter, nullptr, nullptr, napi_enumerable, nullptr};
}

Napi::Value address(Napi::Env env, const UdpSocket& s) { return Napi::String::New(env, s.local().text()); }
Napi::Value port(Napi::Env env, const UdpSocket& s) { return Napi::Number::New(env, s.local().port()); }
Napi::Value family(Napi::Env env, const UdpSocket& s) { return Napi::Number::New(env, s.local().isV6() ? 6 : 4); }
Napi::Value receiveBuffer(Napi::Env env, const UdpSocket& s) { return Napi::Number::New(env, s.receiveBuffer()); }
Napi::Value sendBuffer(Napi::Env env, const UdpSocket& s) { return Napi::Number::New(env, s.sendBuffer()); }
Napi::Value gro(Napi::Env env, const UdpSocket& s) { return Napi::Boolean::New(env, s.gro()); }
Napi::Value drops(Napi::Env env, const UdpSocket& s) { return Napi::Number::New(env, s.drops()); }
Napi::Value closed(Napi::Env env, const UdpSocket& s) { return Napi::Boolean::New(env, s.fd() < 0); }

}  // namespace

void Socket::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Socket", DefineClass(env, "Socket",
                                    {
                                        property<address>("address"),
                                        property<port>("port"),
                                        property<family>("family"),
                                        property<receiveBuffer>("receiveBuffer"),
                                        property<sendBuffer>("sendBuffer"),
                                        property<gro>("gro"),
                                        property<drops>("drops"),
                                        property<closed>("closed"),
                                        InstanceMethod<&Socket::joinGroup>("joinGroup"),
                                        InstanceMethod<&Socket::leaveGroup>("leaveGroup"),
                                        InstanceMethod<&Socket::duplicate>("duplicate"),
                                        InstanceMethod<&Socket::steer>("steer"),
                                        InstanceMethod<&Socket::mute>("mute"),
                                        InstanceMethod<&Socket::close>("close"),
                                    }));
}

Socket::Socket(const Napi::CallbackInfo& info) : ObjectWrap(info) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  const uint32_t family = options.integer("family", 4, 6);
  if (family == 5) throw rangeError(env, "family must be 4 or 6");
  const std::string address = options.string("address", nullptr);
  const auto port = static_cast<uint16_t>(options.integer("port", 0, 0xffff));

  SocketOptions wanted;
  wanted.local = endpointArgument(env, family == 6, address, port);
  if (!options.get("descriptor").IsUndefined())
    wanted.descriptor = static_cast<int>(options.integer("descriptor", 0, 0x7fff'ffff));
  wanted.reusePort = options.boolean("reusePort", false);
  wanted.receiveBuffer = options.integer("receiveBuffer", 0, kMostBuffer, 0);
  wanted.sendBuffer = options.integer("sendBuffer", 0, kMostBuffer, 0);
  wanted.gro = options.boolean("gro", false);
  wanted.checksum = options.boolean("checksum", true);
  wanted.receive = options.boolean("receive", true);
  wanted.device = options.string("device", "");
  if (wanted.device.size() >= IF_NAMESIZE) throw rangeError(env, "device must be a name of an interface");
  wanted.multicastInterface = options.string("multicastInterface", "");

  try {
    socket_ = std::make_shared<UdpSocket>(wanted);
  } catch (const SystemFailure& failure) {
    Napi::Error error =
        systemError(env, failure.errnum, failure.syscall, address + ":" + std::to_string(port));
    error.Value().Set("address", address);
    error.Value().Set("port", Napi::Number::New(env, port));
    throw error;
  }
  napi_type_tag_object(env, info.This(), &kTag);
}

std::shared_ptr<UdpSocket> Socket::from(Napi::Env env, Napi::Value value) {
  // The tag and not `instanceof`, which a program can fake.
  bool tagged = false;
  if (!value.IsObject() || napi_check_object_type_tag(env, value, &kTag, &tagged) != napi_ok || !tagged)
    return nullptr;
  return Unwrap(value.As<Napi::Object>())->socket_;
}

void Socket::close(const Napi::CallbackInfo&) { socket_->close(); }

Napi::Value Socket::duplicate(const Napi::CallbackInfo& info) {
  const int fd = fcntl(socket_->fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw systemError(info.Env(), errno, "fcntl");
  return Napi::Number::New(info.Env(), fd);
}

void Socket::steer(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Words words = wordsArgument(info, 0, "program");
  if (words.length == 0 || words.length % 2 != 0 || words.length / 2 > BPF_MAXINSNS)
    throw rangeError(env, "program must be 1 … 4096 instructions of two words");
  std::vector<sock_filter> program;
  for (size_t i = 0; i < words.length; i += 2) {
    const uint32_t code = words.data[i];
    program.push_back({static_cast<uint16_t>(code), static_cast<uint8_t>(code >> 16),
                       static_cast<uint8_t>(code >> 24), words.data[i + 1]});
  }
  try {
    socket_->steer(program.data(), static_cast<uint16_t>(program.size()));
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
}

void Socket::mute(const Napi::CallbackInfo& info) {
  if (!info[0].IsBoolean()) throw typeError(info.Env(), "on must be a boolean");
  try {
    socket_->mute(info[0].As<Napi::Boolean>().Value());
  } catch (const SystemFailure& failure) {
    throw systemError(info.Env(), failure.errnum, failure.syscall);
  }
}

void Socket::setMembership(const Napi::CallbackInfo& info, bool join) {
  const Napi::Env env = info.Env();
  if (!info[0].IsString()) throw typeError(env, "address must be a string");
  const std::string address = info[0].As<Napi::String>().Utf8Value();
  const Endpoint group = endpointArgument(env, socket_->local().isV6(), address, 0);
  if (!isMulticast(group.gid())) throw rangeError(env, "address must be one of a multicast group");

  uint32_t index = 0;
  std::string name;
  if (info[1].IsString()) {
    name = info[1].As<Napi::String>().Utf8Value();
  } else if (!info[1].IsUndefined()) {
    index = integerArgument(info, 1, "interface", 0x7fff'ffff);
  }
  try {
    if (!name.empty()) index = interfaceIndex(socket_->fd(), name);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall, name);
  }
  try {
    socket_->setMembership(group, index, join);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall, address);
  }
}

}  // namespace roce
