#include "port.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "addon.h"
#include "arguments.h"
#include "callback.h"
#include "socket.h"

namespace roce {
namespace {

constexpr uint32_t kMostLocals = 1024;
/// The token of local sockets: the index of no local address.
constexpr uint32_t kMailbox = 0xffff'ffff;
/// Bytes that an open port holds outside of JavaScript's heap, without peers and kernel memory.
constexpr int64_t kMemory =
    sizeof(Sender) + Sender::kStagingBytes + sizeof(Receiver) + StrangerTable::bytes();

}  // namespace

void Port::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Port", DefineClass(env, "Port",
                                  {
                                      InstanceMethod<&Port::addLocal>("addLocal"),
                                      InstanceMethod<&Port::removeLocal>("removeLocal"),
                                      InstanceMethod<&Port::addPeer>("addPeer"),
                                      InstanceMethod<&Port::removePeer>("removePeer"),
                                      InstanceMethod<&Port::watch>("watch"),
                                      InstanceMethod<&Port::unwatch>("unwatch"),
                                      InstanceMethod<&Port::takeMail>("takeMail"),
                                      InstanceMethod<&Port::setPeerGso>("setPeerGso"),
                                      InstanceMethod<&Port::setClock>("setClock"),
                                      InstanceMethod<&Port::stampArrivals>("stampArrivals"),
                                      InstanceMethod<&Port::send>("send"),
                                      InstanceMethod<&Port::receive>("receive"),
                                      InstanceMethod<&Port::setDeadline>("setDeadline"),
                                      InstanceMethod<&Port::wantWrite>("wantWrite"),
                                      InstanceMethod<&Port::start>("start"),
                                      InstanceMethod<&Port::stop>("stop"),
                                      InstanceMethod<&Port::ref>("ref"),
                                      InstanceMethod<&Port::unref>("unref"),
                                      InstanceMethod<&Port::stats>("stats"),
                                      InstanceMethod<&Port::close>("close"),
                                  }));
}

Port::Port(const Napi::CallbackInfo& info)
    : ObjectWrap(info), env_(info.Env()), crc_(Addon::of(info.Env()).crc) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  const Features& features = Addon::of(env).features();
  transmitSettings_.capacity = options.integer("transmitSockets", 1, 1024, 16);
  transmitSettings_.udpChecksum = options.boolean("udpChecksum", true);
  transmitSettings_.sendBuffer = options.integer("sendBuffer", 0, 1u << 30, 0);
  maxPeers_ = options.integer("maxPeers", 1, 1u << 20, 1u << 16);
  const Napi::Value timeOrigin = options.get("timeOrigin");
  if (!timeOrigin.IsUndefined()) {
    if (!timeOrigin.IsNumber()) throw typeError(env, "timeOrigin must be a number");
    timeOrigin_ = timeOrigin.As<Napi::Number>().DoubleValue();
  }
  Sender::Settings sending;
  sending.gso = options.boolean("gso", true) && features.gso && transmitSettings_.udpChecksum;
  sending.maxSegments = options.integer("maxSegments", 1, 128, 128);
  sending.maxSegments = std::min(sending.maxSegments, features.gsoMaxSegments);
  sending.flushTwice = options.boolean("sendFlushTwice", false);
  Receiver::Settings receiving;
  receiving.idWindow = options.boolean("idWindow", true);
  receiving.flushTwice = options.boolean("takeFlushTwice", false);
  const Napi::Value onWake = options.get("onWake");
  if (!onWake.IsUndefined()) {
    if (!onWake.IsFunction()) throw typeError(env, "onWake must be a function");
    onWake_ = Napi::Persistent(onWake.As<Napi::Function>());
  }

  sender_ = std::make_unique<Sender>(crc_, sending, stats_, peers_, locals_);
  receiver_ = std::make_unique<Receiver>(crc_, receiving, stats_, peers_, locals_);
  try {
    waker_.emplace(
        env, [](void* self, uint32_t events) { static_cast<Port*>(self)->wake(events); }, this);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
  // A program that opens and closes many would else be collected too late.
  Napi::MemoryManagement::AdjustExternalMemory(env, kMemory);
}

Port::~Port() {
  // The environment may be going: nothing here may need JavaScript.
  if (waker_) freeMemory();
  waker_.reset();
}

void Port::freeMemory() {
  sender_.reset();
  receiver_.reset();
  peers_ = PeerTable{};
  regions_.release();
  int64_t total;
  napi_adjust_external_memory(env_, -kMemory, &total);
}

void Port::expectOpen(Napi::Env env) const {
  if (waker_) return;
  Napi::Error error = Napi::Error::New(env, "the port is closed");
  error.Value().Set("code", "ERR_ROCE_PORT_CLOSED");
  throw error;
}

Napi::Value Port::addLocal(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  auto socket = Socket::from(env, info[0]);
  if (socket == nullptr) throw typeError(env, "socket must be a Socket");
  if (socket->fd() < 0) throw rangeError(env, "socket must be open");
  if (isWildcard(socket->local().gid()))
    throw rangeError(env, "socket must be bound to one address: the ICRC covers it");
  for (const auto& local : locals_)
    if (local && local->socket == socket) throw rangeError(env, "socket must not be in the port already");

  const auto free = std::find(locals_.begin(), locals_.end(), nullptr);
  const auto index = static_cast<uint32_t>(free - locals_.begin());
  if (index == kMostLocals) throw rangeError(env, "a port has at most 1024 local addresses");
  if (socket->options().receive) {
    try {
      if (stamping_) socket->stamp();
      waker_->watch(socket->fd(), index);
    } catch (const SystemFailure& failure) {
      throw systemError(env, failure.errnum, failure.syscall);
    }
  }
  auto local = std::make_unique<Local>(std::move(socket), transmitSettings_);
  if (free == locals_.end())
    locals_.push_back(std::move(local));
  else
    *free = std::move(local);
  localCount_++;
  return Napi::Number::New(env, index);
}

void Port::removeLocal(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const uint32_t index = integerArgument(info, 0, "local", 0xffff'ffff);
  Local* local = localAt(index);
  if (local == nullptr) throw rangeError(info.Env(), "local must be the index of a local address");
  if (peers_.anyOf(index)) throw rangeError(info.Env(), "local must not be that of a peer");
  if (local->socket->fd() >= 0) {
    pastDrops_ += local->socket->drops();
    waker_->unwatch(local->socket->fd());
  }
  sender_->forget(*local);
  watchRoom();
  locals_[index] = nullptr;
  localCount_--;
}

void Port::watch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  auto mailbox = LocalSocket::from(env, info[0]);
  if (mailbox == nullptr || mailbox->fd() < 0) throw typeError(env, "socket must be an open LocalSocket");
  try {
    waker_->watch(mailbox->fd(), kMailbox);
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
  mailboxes_.push_back(std::move(mailbox));
}

void Port::unwatch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const auto at = std::find(mailboxes_.begin(), mailboxes_.end(), LocalSocket::from(env, info[0]));
  if (at == mailboxes_.end()) throw typeError(env, "socket must be a LocalSocket that is watched");
  waker_->unwatch((*at)->fd());
  mailboxes_.erase(at);
}

Napi::Value Port::takeMail(const Napi::CallbackInfo& info) {
  const bool mail = mail_;
  mail_ = false;
  return Napi::Boolean::New(info.Env(), mail);
}

Napi::Value Port::addPeer(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Options options(env, info[0], "peer");
  const uint32_t localIndex = options.integer("local", 0, 0xffff'ffff);
  const uint32_t hopLimit = options.integer("hopLimit", 0, 255, kUsualHopLimit);
  const auto port = static_cast<uint16_t>(options.integer("port", 1, 0xffff, 4791));
  Bytes address;
  if (!readBytes(env, options.get("address"), address) || address.length != 16)
    throw typeError(env, "address must be a Uint8Array of 16 bytes");

  Peer peer;
  std::memcpy(peer.gid.data(), address.data, 16);
  const Local* local = localAt(localIndex);
  if (local == nullptr) throw rangeError(env, "local must be the index of a local address");
  if (isMulticast(local->gid)) throw rangeError(env, "local must not be the address of a group");
  if (isMappedV4(peer.gid) != isMappedV4(local->gid))
    throw rangeError(env, "address must be of the same family as the local address");
  if (isWildcard(peer.gid)) throw rangeError(env, "address must not be the unspecified address");
  if (peers_.size() >= maxPeers_) throw rangeError(env, "the port has its maximum of peers");

  peer.local = localIndex;
  peer.hopLimit = hopLimit == 0 ? kUsualHopLimit : static_cast<uint8_t>(hopLimit);
  peer.to = endpointOf(peer.gid, port, local->socket->local().scope());
  peer.pseudo = PseudoHeader(local->gid, peer.gid);
  return Napi::Number::New(env, peers_.add(std::move(peer)));
}

Peer& Port::peerArgument(const Napi::CallbackInfo& info, size_t index) {
  Peer* peer = peers_.at(integerArgument(info, index, "peer", 0xffff'ffff));
  if (peer == nullptr) throw rangeError(info.Env(), "peer must be the index of a peer");
  return *peer;
}

void Port::removePeer(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  peerArgument(info, 0);
  peers_.remove(info[0].As<Napi::Number>().Uint32Value());
}

void Port::setPeerGso(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  if (!info[1].IsBoolean()) throw typeError(info.Env(), "on must be a boolean");
  peerArgument(info, 0).gso = info[1].As<Napi::Boolean>().Value();
}

void Port::setClock(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  Doubles time;
  if (!readDoubles(env, info[0], time) || time.length == 0 || !isShared(env, info[0]))
    throw typeError(env, "time must be a Float64Array over a SharedArrayBuffer, with an element");
  clock_ = Napi::Persistent(info[0].As<Napi::Object>());
  time_ = time.data;
}

void Port::stampArrivals(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  try {
    for (const auto& local : locals_)
      if (local && local->socket->fd() >= 0 && local->socket->options().receive) local->socket->stamp();
  } catch (const SystemFailure& failure) {
    throw systemError(env, failure.errnum, failure.syscall);
  }
  stamping_ = true;
  receiver_->stamp();
}

Napi::Value Port::send(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  TxArrays arrays{wordsArgument(info, 0, "slots"), {}, wordsArgument(info, 2, "fragments"), {}};
  const uint32_t from = integerArgument(info, 3, "from", 0x7fff'ffff);
  const uint32_t count = integerArgument(info, 4, "count", 0x7fff'ffff);
  if (from > count) throw rangeError(env, "from must be at most count");
  const auto expectRoom = [&] {
    if (count > arrays.slots.length / tx::kSlotWords)
      throw rangeError(env, "count must be at most the number of slots");
  };
  expectRoom();

  regions_.begin(env, info[5]);
  TxSlots::wantRegions(arrays, from, count, regions_);
  if (!regions_.fetch()) return {};
  if (regions_.wantsAny()) {
    // A getter among the views may have run: where the arrays are, and whether the port is, is asked again.
    expectOpen(env);
    arrays.slots = wordsArgument(info, 0, "slots");
    arrays.fragments = wordsArgument(info, 2, "fragments");
    expectRoom();
  }
  arrays.headers = bytesArgument(info, 1, "headers");
  arrays.regionShared = bytesArgument(info, 6, "regionShared");
  const uint32_t taken = sender_->send(arrays, regions_, from, count);
  if (wantsWrite_) watchRoom();
  writeTime();
  return Napi::Number::New(env, taken);
}

Napi::Value Port::receive(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const RxArrays arrays{bytesArgument(info, 0, "slab"), wordsArgument(info, 1, "slots"),
                        bytesArgument(info, 2, "sources"), integerArgument(info, 3, "capacity", 0x7fff'ffff)};
  if (arrays.capacity > arrays.slots.length / rx::kSlotWords || arrays.capacity > arrays.sources.length / 16)
    throw rangeError(env, "capacity must be at most the number of slots and of sources");
  if (arrays.slab.length > 0xffff'ffff) throw rangeError(env, "slab must be at most 4 GiB");

  receiver_->begin(arrays);
  if (localCount_ == 1 && mailboxes_.empty()) {
    const auto only = std::find_if(locals_.begin(), locals_.end(), [](const auto& local) { return !!local; });
    while (receiver_->drain(static_cast<uint32_t>(only - locals_.begin()), 1)) {
    }
  } else {
    // The kernel's list of readable sockets goes round by itself.
    uint32_t ready[64];
    bool more = true;
    while (more) {
      const uint32_t number = waker_->readable(ready, 64);
      more = false;
      for (uint32_t i = 0; i < number; i++) {
        if (ready[i] == kMailbox) mail_ = true;
        if (localAt(ready[i]) != nullptr) more = receiver_->drain(ready[i], number - i) || more;
      }
    }
  }
  writeTime();
  return Napi::Number::New(env, receiver_->count());
}

void Port::writeTime() const {
  if (time_ == nullptr) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  *time_ = static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3 - timeOrigin_;
}

void Port::setDeadline(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  if (!info[0].IsNumber()) throw typeError(info.Env(), "microseconds must be a number");
  const double microseconds = info[0].As<Napi::Number>().DoubleValue();
  if (std::isnan(microseconds)) throw rangeError(info.Env(), "microseconds must not be NaN");
  waker_->setDeadline(microseconds);
}

void Port::wantWrite(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  if (!info[0].IsBoolean()) throw typeError(info.Env(), "on must be a boolean");
  wantsWrite_ = info[0].As<Napi::Boolean>().Value();
  watchRoom();
}

void Port::watchRoom() {
  const int fd = sender_->blockedFd();
  if (wantsWrite_ && sender_->blocked() && fd < 0)
    waker_->retryWrite();
  else
    waker_->watchWrite(wantsWrite_ ? fd : -1);
}

void Port::start(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->start();
  if (!held_) Ref();
  held_ = true;
}

void Port::stop(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->stop();
  release();
}

void Port::release() {
  if (held_) Unref();
  held_ = false;
}

void Port::ref(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->setRef(true);
}

void Port::unref(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  waker_->setRef(false);
}

void Port::wake(uint32_t events) {
  if (!onWake_.IsEmpty()) callFromLoop(env_, *this, onWake_, events);
}

Napi::Value Port::stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!info[0].IsUndefined() && !info[0].IsObject()) throw typeError(env, "into must be an object");
  Napi::Object into = info[0].IsUndefined() ? Napi::Object::New(env) : info[0].As<Napi::Object>();
  // Everything is read before anything is set: a setter could close the port.
  const Stats counts = stats_;
  uint64_t drops = pastDrops_, sockets = 0;
  for (const auto& local : locals_) {
    if (!local) continue;
    if (local->socket->fd() >= 0) drops += local->socket->drops();
    sockets += local->transmit.size();
  }
  for (const StatField& field : kStatFields)
    into.Set(field.name, Napi::Number::New(env, static_cast<double>(counts.*field.count)));
  into.Set("kernelDrops", Napi::Number::New(env, static_cast<double>(drops)));
  into.Set("transmitSockets", Napi::Number::New(env, static_cast<double>(sockets)));
  return into;
}

void Port::close(const Napi::CallbackInfo&) {
  if (!waker_) return;
  for (const auto& local : locals_)
    if (local && local->socket->fd() >= 0) pastDrops_ += local->socket->drops();
  waker_.reset();
  freeMemory();
  mailboxes_.clear();
  locals_.clear();
  localCount_ = 0;
  onWake_.Reset();
  time_ = nullptr;
  clock_.Reset();
  release();
}

}  // namespace roce
