#include "local_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <thread>

#include "arguments.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace roce {
namespace {

constexpr napi_type_tag kTag{0x3b1e'97c4'5a60'4f2du, 0xa7c2'10e8'6d9b'53f4u};

/// The abstract name: it belongs to the network namespace, as ports do, and goes with its last descriptor (unix(7)).
socklen_t nameArgument(const Napi::CallbackInfo& info, size_t index, sockaddr_un& out) {
  const Napi::Env env = info.Env();
  if (!info[index].IsString()) throw typeError(env, "name must be a string");
  const std::string name = info[index].As<Napi::String>().Utf8Value();
  if (name.empty() || name.size() >= sizeof out.sun_path)
    throw rangeError(env, "name must have 1 … 107 bytes");
  out = sockaddr_un{};
  out.sun_family = AF_UNIX;
  std::memcpy(out.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

/// The message that waits first, which stays where it is.
struct Waiting {
  /// 0, or why there is none.
  int errnum = 0;
  bool isOurs = false;
  bool hasDescriptors = false;
};

Waiting lookAt(int fd) {
  // Room for the credentials alone: MSG_CTRUNC then shows that descriptors came, too.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do
    received = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  Waiting waiting;
  if (received < 0) {
    waiting.errnum = errno;
    return waiting;
  }
  waiting.hasDescriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) return waiting;
  ucred sender;
  std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
  waiting.isOurs = sender.uid == geteuid();
  return waiting;
}

void passRights(int fd, bool on) {
  const int value = on;
  // Older kernels let everybody send descriptors.
  setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof value);
}

}  // namespace

void LocalDescriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void LocalDescriptor::discard() {
  if (discarding_.exchange(true)) return;
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  try {
    if (fd < 0) throw std::system_error(errno, std::generic_category());
    std::thread([self = shared_from_this(), fd] {
      char byte;
      recv(fd, &byte, sizeof byte, MSG_DONTWAIT);
      ::close(fd);
      self->discarding_ = false;
    }).detach();
  } catch (const std::system_error&) {
    // No descriptor or thread is left: later turns try again.
    if (fd >= 0) ::close(fd);
    discarding_ = false;
  }
}

void LocalSocket::define(Napi::Env env, Napi::Object exports) {
  exports.Set("LocalSocket", DefineClass(env, "LocalSocket",
                                         {
                                             InstanceMethod<&LocalSocket::allowDescriptors>("allowDescriptors"),
                                             InstanceMethod<&LocalSocket::send>("send"),
                                             InstanceMethod<&LocalSocket::receive>("receive"),
                                             InstanceMethod<&LocalSocket::close>("close"),
                                         }));
}

LocalSocket::LocalSocket(const Napi::CallbackInfo& info) : ObjectWrap(info) {
  const Napi::Env env = info.Env();
  sockaddr_un address;
  const socklen_t length = nameArgument(info, 0, address);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) throw systemError(env, errno, "socket");
  socket_ = std::make_shared<LocalDescriptor>(fd);
  // Any process may send to an abstract name: each message carries its sender's credentials.
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) throw systemError(env, errno, "setsockopt");
  passRights(fd, false);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0)
    throw systemError(env, errno, "bind", address.sun_path + 1);
  napi_type_tag_object(env, info.This(), &kTag);
}

std::shared_ptr<LocalDescriptor> LocalSocket::from(Napi::Env env, Napi::Value value) {
  bool tagged = false;
  if (!value.IsObject() || napi_check_object_type_tag(env, value, &kTag, &tagged) != napi_ok || !tagged)
    return nullptr;
  return Unwrap(value.As<Napi::Object>())->socket_;
}

/// allowDescriptors(on): whether messages may bring some.
void LocalSocket::allowDescriptors(const Napi::CallbackInfo& info) {
  if (!info[0].IsBoolean()) throw typeError(info.Env(), "on must be a boolean");
  passRights(socket_->fd(), info[0].As<Napi::Boolean>().Value());
}

/// send(name, bytes, descriptors): 0, or the errno.
Napi::Value LocalSocket::send(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  sockaddr_un to;
  const socklen_t length = nameArgument(info, 0, to);
  std::vector<int> descriptors;
  if (info[2].IsArray()) {
    const auto list = info[2].As<Napi::Array>();
    if (list.Length() > kMostDescriptors) throw rangeError(env, "descriptors must be 64 at most");
    for (uint32_t i = 0; i < list.Length(); i++) {
      const Napi::Value each = list[i];
      if (!each.IsNumber()) throw typeError(env, "descriptors must be numbers");
      descriptors.push_back(each.As<Napi::Number>().Int32Value());
    }
  } else if (!info[2].IsUndefined()) {
    throw typeError(env, "descriptors must be an array");
  }
  const Bytes bytes = bytesArgument(info, 1, "bytes");

  iovec data{bytes.data, bytes.length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)] = {};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = length;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t size = sizeof(int) * descriptors.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  const ssize_t sent = sendmsg(socket_->fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return Napi::Number::New(env, sent < 0 ? errno : 0);
}

/// receive(bytes): undefined where nothing waits, else { length, uid, descriptors }.
Napi::Value LocalSocket::receive(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Bytes bytes = bytesArgument(info, 0, "bytes");
  if (socket_->discarding()) return env.Undefined();
  const Waiting waiting = lookAt(socket_->fd());
  if (waiting.errnum == EAGAIN || waiting.errnum == EWOULDBLOCK) return env.Undefined();
  if (waiting.errnum != 0) throw systemError(env, waiting.errnum, "recvmsg");
  if (waiting.hasDescriptors && !waiting.isOurs) {
    socket_->discard();
    return env.Undefined();
  }
  iovec data{bytes.data, bytes.length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do
    received = recvmsg(socket_->fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return env.Undefined();
    throw systemError(env, errno, "recvmsg");
  }
  double uid = -1;
  Napi::Array descriptors = Napi::Array::New(env);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
      uid = sender.uid;
    } else if (header->cmsg_type == SCM_RIGHTS) {
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; i++) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        descriptors.Set(static_cast<uint32_t>(i), Napi::Number::New(env, fd));
      }
    }
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("length", Napi::Number::New(env, static_cast<double>(received)));
  result.Set("uid", Napi::Number::New(env, uid));
  result.Set("descriptors", descriptors);
  return result;
}

void LocalSocket::close(const Napi::CallbackInfo&) { socket_->close(); }

}  // namespace roce
