#include "link_port.h"

#include <cmath>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "addon.h"
#include "bound.h"
#include "callback.h"
#include "udp_socket.h"

namespace roce {

LinkPort::LinkPort(Napi::Reference<Napi::Object>& self, const Info& info)
    : env_(info.Env()), crc_(Addon::of(info.Env()).crc), self_(self) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  maxPeers_ = options.integer("maxPeers", 1, 1u << 20, 1u << 16);
  const Napi::Value timeOrigin = options.get("timeOrigin");
  if (!timeOrigin.IsUndefined()) {
    if (!timeOrigin.IsNumber()) throw typeError(env, "timeOrigin must be a number");
    timeOrigin_ = timeOrigin.As<Napi::Number>().DoubleValue();
  }
  const Napi::Value onWake = options.get("onWake");
  if (onWake.IsUndefined()) return;
  if (!onWake.IsFunction()) throw typeError(env, "onWake must be a function");
  onWake_ = Napi::Persistent(onWake.As<Napi::Function>());
}

void LinkPort::openWaker() {
  waker_.emplace(
      env_,
      [](void* context, uint32_t events) {
        auto* port = static_cast<LinkPort*>(context);
        port->woken();
        if (!port->onWake_.IsEmpty()) callFromLoop(port->env_, port->self_, port->onWake_, events);
      },
      this);
}

void LinkPort::letGo() {
  onWake_.Reset();
  time_ = nullptr;
  clock_.Reset();
  release();
}

void LinkPort::expectOpen(Napi::Env env) const {
  if (waker_) return;
  Napi::Error error = Napi::Error::New(env, "the port is closed");
  error.Value().Set("code", "ERR_ROCE_PORT_CLOSED");
  throw error;
}

bool LinkPort::booleanArgument(const Info& info, size_t index, const char* name) {
  if (!info[index].IsBoolean()) throw typeError(info.Env(), std::string(name) + " must be a boolean");
  return info[index].As<Napi::Boolean>();
}

uint32_t LinkPort::freeLocalArgument(const Info& info) {
  const uint32_t index = integerArgument(info, 0, "local", 0xffff'ffff);
  if (sourceOf(index).gid == nullptr) throw rangeError(info.Env(), "local must be the index of a local address");
  if (peers_.anyOf(index)) throw rangeError(info.Env(), "local must not be that of a peer");
  return index;
}

Napi::Value LinkPort::addPeer(const Info& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Options options(env, info[0], "peer");
  const uint32_t local = options.integer("local", 0, 0xffff'ffff);
  const uint32_t hopLimit = options.integer("hopLimit", 0, 255, kUsualHopLimit);
  const auto port = static_cast<uint16_t>(options.integer("port", 1, 0xffff, 4791));
  Bytes address;
  if (!readBytes(env, options.get("address"), address) || address.length != 16)
    throw typeError(env, "address must be a Uint8Array of 16 bytes");

  Peer peer;
  std::memcpy(peer.gid.data(), address.data, 16);
  const Source source = sourceOf(local);
  if (source.gid == nullptr) throw rangeError(env, "local must be the index of a local address");
  if (isMulticast(*source.gid)) throw rangeError(env, "local must not be the address of a group");
  if (isMappedV4(peer.gid) != isMappedV4(*source.gid))
    throw rangeError(env, "address must be of the same family as the local address");
  if (isWildcard(peer.gid)) throw rangeError(env, "address must not be the unspecified address");
  if (peers_.size() >= maxPeers_) throw rangeError(env, "the port has its maximum of peers");

  peer.local = local;
  peer.hopLimit = hopLimit == 0 ? kUsualHopLimit : static_cast<uint8_t>(hopLimit);
  peer.to = endpointOf(peer.gid, port, source.scope);
  peer.source = *source.gid;
  const uint32_t index = peers_.add(std::move(peer));
  peerAdded(index, *source.gid);
  return Napi::Number::New(env, index);
}

Peer& LinkPort::peerArgument(const Info& info, size_t index) {
  Peer* peer = peers_.at(integerArgument(info, index, "peer", 0xffff'ffff));
  if (peer == nullptr) throw rangeError(info.Env(), "peer must be the index of a peer");
  return *peer;
}

void LinkPort::removePeer(const Info& info) {
  expectOpen(info.Env());
  peerArgument(info, 0);
  peers_.remove(info[0].As<Napi::Number>().Uint32Value());
}

void LinkPort::setClock(const Info& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  Doubles time;
  if (!readDoubles(env, info[0], time) || time.length < 2 || !isShared(env, info[0]))
    throw typeError(env, "time must be a Float64Array over a SharedArrayBuffer, with two elements");
  clock_ = Napi::Persistent(info[0].As<Napi::Object>());
  time_ = time.data;
}

void LinkPort::expectRoom(Napi::Env env, const TxArrays& arrays, uint32_t from, uint32_t count) {
  if (from > count) throw rangeError(env, "from must be at most count");
  if (count > arrays.slots.length / tx::kSlotWords) throw rangeError(env, "count must be at most the number of slots");
}

bool LinkPort::fetchRegions(Napi::Env env, const TxArrays& arrays, uint32_t from, uint32_t count) {
  TxSlots::wantRegions(arrays, from, count, regions_);
  if (!regions_.fetch()) return false;
  // A getter among the views may have run.
  if (regions_.wantsAny()) expectOpen(env);
  return true;
}

uint32_t LinkPort::sendNow(const TxArrays& arrays, uint32_t from, uint32_t count) {
  const uint32_t taken = sendBatch(arrays, from, count);
  writeTime();
  return taken;
}

uint32_t LinkPort::receiveNow(const RxArrays& arrays) {
  const uint32_t count = receiveBatch(arrays);
  writeTime();
  return count;
}

Napi::Value LinkPort::send(const Info& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  TxArrays arrays{wordsArgument(info, 0, "slots"), {}, wordsArgument(info, 2, "fragments"), {}};
  const uint32_t from = integerArgument(info, 3, "from", 0x7fff'ffff);
  const uint32_t count = integerArgument(info, 4, "count", 0x7fff'ffff);
  expectRoom(env, arrays, from, count);
  regions_.begin(env, info[5]);
  if (!fetchRegions(env, arrays, from, count)) return {};
  if (regions_.wantsAny()) {
    // A getter may have moved the arrays, too.
    arrays.slots = wordsArgument(info, 0, "slots");
    arrays.fragments = wordsArgument(info, 2, "fragments");
    expectRoom(env, arrays, from, count);
  }
  arrays.headers = bytesArgument(info, 1, "headers");
  arrays.regionShared = bytesArgument(info, 6, "regionShared");
  return Napi::Number::New(env, sendNow(arrays, from, count));
}

Napi::Value LinkPort::receive(const Info& info) {
  expectOpen(info.Env());
  return Napi::Number::New(info.Env(), receiveNow(readReceiving(info)));
}

/// A batch to send, looked up once. Its function owns it, and keeps port and arrays.
struct LinkPort::BoundSend {
  LinkPort* port;
  TxArrays arrays;
  Napi::ObjectReference views;
  Napi::ObjectReference kept;

  napi_value call(const BoundCall& call) {
    const napi_env env = call.env;
    port->expectOpen(env);
    const uint32_t from = integerArgument(env, call.arguments[0], "from", 0x7fff'ffff);
    const uint32_t count = integerArgument(env, call.arguments[1], "count", 0x7fff'ffff);
    expectRoom(env, arrays, from, count);
    port->regions_.beginBound(env, views);
    if (call.count > 2) port->regions_.give(call.arguments[2]);
    if (!port->fetchRegions(env, arrays, from, count)) return nullptr;
    return call.number(port->sendNow(arrays, from, count));
  }
};

/// A batch to receive into, likewise.
struct LinkPort::BoundReceive {
  LinkPort* port;
  RxArrays arrays;
  Napi::ObjectReference kept;

  napi_value call(const BoundCall& call) {
    port->expectOpen(call.env);
    return call.number(port->receiveNow(arrays));
  }
};

Napi::Value LinkPort::sender(const Info& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  auto bound = std::make_unique<BoundSend>();
  bound->port = this;
  bound->arrays = {wordsArgument(info, 0, "slots"), bytesArgument(info, 1, "headers"),
                   wordsArgument(info, 2, "fragments"), bytesArgument(info, 4, "regionShared")};
  if (!info[3].IsArray()) throw typeError(env, "regionViews must be an array");
  bound->kept = keepShared(info, {0, 1, 2, 4});
  bound->views = Napi::Persistent(info[3].As<Napi::Object>());
  return functionOf(env, std::move(bound), "send");
}

Napi::Value LinkPort::receiver(const Info& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  auto bound = std::make_unique<BoundReceive>();
  bound->port = this;
  bound->arrays = readReceiving(info);
  bound->kept = keepShared(info, {0, 1, 2});
  return functionOf(env, std::move(bound), "receive");
}

RxArrays LinkPort::readReceiving(const Info& info) {
  const Napi::Env env = info.Env();
  const RxArrays arrays{bytesArgument(info, 0, "slab"), wordsArgument(info, 1, "slots"),
                        bytesArgument(info, 2, "sources"), integerArgument(info, 3, "capacity", 0x7fff'ffff)};
  if (arrays.capacity > arrays.slots.length / rx::kSlotWords || arrays.capacity > arrays.sources.length / 16)
    throw rangeError(env, "capacity must be at most the number of slots and of sources");
  if (arrays.slab.length > 0xffff'ffff) throw rangeError(env, "slab must be at most 4 GiB");
  return arrays;
}

void LinkPort::writeTime() const {
  if (time_ == nullptr) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  time_[0] = static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3 - timeOrigin_;
  time_[1] = more_ ? 1 : 0;
}

void LinkPort::setDeadline(const Info& info) {
  expectOpen(info.Env());
  if (!info[0].IsNumber()) throw typeError(info.Env(), "microseconds must be a number");
  const double microseconds = info[0].As<Napi::Number>().DoubleValue();
  if (std::isnan(microseconds)) throw rangeError(info.Env(), "microseconds must not be NaN");
  waker_->setDeadline(microseconds);
}

void LinkPort::start(const Info& info) {
  expectOpen(info.Env());
  waker_->start();
  if (!held_) self_.Ref();
  held_ = true;
}

void LinkPort::stop(const Info& info) {
  expectOpen(info.Env());
  waker_->stop();
  release();
}

void LinkPort::release() {
  if (held_) self_.Unref();
  held_ = false;
}

void LinkPort::ref(const Info& info) {
  expectOpen(info.Env());
  waker_->setRef(true);
}

void LinkPort::unref(const Info& info) {
  expectOpen(info.Env());
  waker_->setRef(false);
}

void LinkPort::setCount(Napi::Object into, const char* name, uint64_t count) {
  into.Set(name, Napi::Number::New(into.Env(), static_cast<double>(count)));
}

}  // namespace roce
