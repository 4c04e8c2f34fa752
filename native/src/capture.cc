#include "capture.h"

#include <net/if.h>

#include <cerrno>
#include <cstring>

#include "callback.h"
#include "layout.h"
#include "udp_socket.h"

namespace roce {
namespace {

constexpr uint32_t kMostSnapLength = 262'144;
/// Bytes of a VLAN tag, and where in the frame it stands.
constexpr uint32_t kTag = 4, kTagAt = 12;
/// LINKTYPE_ numbers of pcap.
constexpr uint32_t kLinkTypeEthernet = 1, kLinkTypeRaw = 101;

/// Copies the frame, with its VLAN tag put back. @returns its bytes there
uint32_t copyFrame(const RingFrame& frame, uint8_t* to) {
  if (!frame.tagged || frame.captured < kTagAt) {
    std::memcpy(to, frame.bytes, frame.captured);
    return frame.captured;
  }
  std::memcpy(to, frame.bytes, kTagAt);
  const uint8_t tag[kTag] = {uint8_t(frame.tpid >> 8), uint8_t(frame.tpid), uint8_t(frame.tci >> 8), uint8_t(frame.tci)};
  std::memcpy(to + kTagAt, tag, kTag);
  std::memcpy(to + kTagAt + kTag, frame.bytes + kTagAt, frame.captured - kTagAt);
  return frame.captured + kTag;
}

}  // namespace

void Capture::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Capture", DefineClass(env, "Capture",
                                     {
                                         InstanceMethod<&Capture::read>("read"),
                                         InstanceMethod<&Capture::stats>("stats"),
                                         InstanceMethod<&Capture::start>("start"),
                                         InstanceMethod<&Capture::stop>("stop"),
                                         InstanceMethod<&Capture::finish>("finish"),
                                         InstanceMethod<&Capture::close>("close"),
                                     }));
}

Capture::Capture(const Napi::CallbackInfo& info) : ObjectWrap(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  PacketRingOptions wanted;
  wanted.interface = interface_ = options.string("interface", nullptr);
  if (interface_.empty() || interface_.size() >= IF_NAMESIZE || interface_.find('\0') != std::string::npos)
    throw rangeError(env, "interface must be a name of an interface");
  wanted.snapLength = snapLength_ = options.integer("snapLength", 64, kMostSnapLength, kMostSnapLength);
  wanted.wholeFrom = options.integer("wholeFrom", 0, kMostSnapLength, kMostSnapLength);
  mostCaptured_ = wanted.wholeFrom < kMostSnapLength ? kMostSnapLength : snapLength_;
  wanted.promiscuous = options.boolean("promiscuous", true);
  wanted.mirrors = options.boolean("mirrors", false);
  wanted.buffer = options.integer("buffer", 1u << 20, 1u << 30, wanted.buffer);
  const Napi::Value onWake = options.get("onWake");
  if (!onWake.IsUndefined()) {
    if (!onWake.IsFunction()) throw typeError(env, "onWake must be a function");
    onWake_ = Napi::Persistent(onWake.As<Napi::Function>());
  }
  try {
    ring_.emplace(wanted);
    waker_.emplace(
        env,
        [](void* self, uint32_t events) {
          auto* capture = static_cast<Capture*>(self);
          if (!capture->onWake_.IsEmpty()) callFromLoop(capture->env_, *capture, capture->onWake_, events);
        },
        this);
    waker_->watch(ring_->fd(), 0);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall, interface_);
  }
  info.This().As<Napi::Object>().DefineProperty(Napi::PropertyDescriptor::Value(
      "linkType", Napi::Number::New(env, ring_->ethernet() ? kLinkTypeEthernet : kLinkTypeRaw), napi_enumerable));
}

Capture::~Capture() {
  // The watch goes before the descriptor. The environment may be going: nothing here may need JavaScript.
  waker_.reset();
}

void Capture::expectOpen(Napi::Env env) const {
  if (waker_) return;
  Napi::Error error = Napi::Error::New(env, "the capture is closed");
  error.Value().Set("code", "ERR_ROCE_CAPTURE_CLOSED");
  throw error;
}

Napi::Value Capture::read(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Bytes slab = bytesArgument(info, 0, "slab");
  const Words slots = wordsArgument(info, 1, "slots");
  if (slab.length < mostCaptured_ + kTag) throw rangeError(env, "slab must hold the longest frame and a VLAN tag");
  if (slab.length > 0xffff'ffff) throw rangeError(env, "slab must be at most 4 GiB");

  const size_t capacity = slots.length / captured::kSlotWords;
  size_t used = 0;
  uint32_t count = 0;
  RingFrame frame;
  while (count < capacity && ring_->next(frame)) {
    if (slab.length - used < frame.captured + kTag) break;
    uint32_t* slot = slots.data + size_t{count} * captured::kSlotWords;
    const uint32_t length = copyFrame(frame, slab.data + used);
    slot[captured::offset] = static_cast<uint32_t>(used);
    slot[captured::length] = length;
    slot[captured::originalLength] = frame.original + (length - frame.captured);
    slot[captured::seconds] = frame.seconds;
    slot[captured::nanoseconds] = frame.nanoseconds;
    slot[captured::outgoing] = frame.outgoing ? 1 : 0;
    ring_->release();
    used += length;
    count++;
  }
  if (count == 0 && capacity > 0) {
    if (const int errnum = ring_->takeError(); errnum != 0) throw systemError(env, errnum, "poll", interface_);
  }
  return Napi::Number::New(env, count);
}

Napi::Value Capture::stats(const Napi::CallbackInfo& info) {
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("received", Napi::Number::New(info.Env(), static_cast<double>(ring_->received())));
  object.Set("dropped", Napi::Number::New(info.Env(), static_cast<double>(ring_->dropped())));
  return object;
}

void Capture::start(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->start();
  if (!held_) Ref();
  held_ = true;
}

void Capture::stop(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->stop();
  release();
}

void Capture::release() {
  if (held_) Unref();
  held_ = false;
}

void Capture::finish(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  try {
    ring_->finish();
  } catch (const SystemFailure& failure) {
    throw systemError(info.Env(), failure.errnum, failure.syscall, interface_);
  }
}

void Capture::close(const Napi::CallbackInfo&) {
  if (!waker_) return;
  waker_.reset();
  ring_->close();
  onWake_.Reset();
  release();
}

}  // namespace roce
