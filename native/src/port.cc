#include "port.h"

#include <algorithm>

#include "addon.h"
#include "arguments.h"
#include "socket.h"

namespace roce {
namespace {

/// The token of local sockets: the index of no local address.
constexpr uint32_t kMailbox = 0xffff'ffff;
/// Bytes that an open port holds outside of JavaScript's heap, without peers and kernel memory.
constexpr int64_t kMemory =
    sizeof(Sender) + Sender::kStagingBytes + sizeof(Receiver) + StrangerTable::bytes();

}  // namespace

void Port::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Port", DefineClass(env, "Port",
                                  withMethods<Port>({
                                      InstanceMethod<&Port::addLocal>("addLocal"),
                                      InstanceMethod<&Port::removeLocal>("removeLocal"),
                                      InstanceMethod<&Port::watch>("watch"),
                                      InstanceMethod<&Port::unwatch>("unwatch"),
                                      InstanceMethod<&Port::takeMail>("takeMail"),
                                      InstanceMethod<&Port::setPeerGso>("setPeerGso"),
                                      InstanceMethod<&Port::stampArrivals>("stampArrivals"),
                                      InstanceMethod<&Port::openIdWindow>("openIdWindow"),
                                      InstanceMethod<&Port::wantWrite>("wantWrite"),
                                      InstanceMethod<&Port::stats>("stats"),
                                      InstanceMethod<&Port::close>("close"),
                                  })));
}

Port::Port(const Napi::CallbackInfo& info)
    : ObjectWrap(info), LinkPort(*this, info) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  const Features& features = Addon::of(env).features();
  transmitSettings_.capacity = options.integer("transmitSockets", 1, 1024, 16);
  transmitSettings_.udpChecksum = options.boolean("udpChecksum", true);
  transmitSettings_.sendBuffer = options.integer("sendBuffer", 0, 1u << 30, 0);
  Sender::Settings sending;
  sending.gso = options.boolean("gso", true) && features.gso && transmitSettings_.udpChecksum;
  sending.maxSegments = options.integer("maxSegments", 1, 128, 128);
  sending.maxSegments = std::min(sending.maxSegments, features.gsoMaxSegments);
  sending.flushTwice = options.boolean("sendFlushTwice", false);
  Receiver::Settings receiving;
  receiving.idWindow = options.boolean("idWindow", true);
  receiving.flushTwice = options.boolean("takeFlushTwice", false);

  sender_ = std::make_unique<Sender>(crc_, sending, stats_, peers_, locals_);
  receiver_ = std::make_unique<Receiver>(crc_, receiving, stats_, peers_, locals_);
  try {
    openWaker();
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

LinkPort::Source Port::sourceOf(uint32_t index) const {
  const Local* local = localAt(index);
  return local == nullptr ? Source{nullptr, 0} : Source{&local->gid, local->socket->local().scope()};
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
  findFirst(locals_[index]->gid);
  localCount_++;
  return Napi::Number::New(env, index);
}

void Port::removeLocal(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const uint32_t index = freeLocalArgument(info);
  Local* local = localAt(index);
  if (local->socket->fd() >= 0) {
    pastDrops_ += local->socket->drops();
    waker_->unwatch(local->socket->fd());
  }
  sender_->forget(*local);
  watchRoom();
  const Gid address = local->gid;
  locals_[index] = nullptr;
  findFirst(address);
  localCount_--;
}

void Port::findFirst(const Gid& address) {
  uint32_t first = kMostLocals;
  for (uint32_t i = 0; i < locals_.size(); i++) {
    // A socket that was closed has left a hole.
    if (locals_[i] == nullptr || locals_[i]->gid != address) continue;
    first = std::min(first, i);
    locals_[i]->firstOfAddress = first;
  }
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

void Port::setPeerGso(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const bool on = booleanArgument(info, 1, "on");
  peerArgument(info, 0).gso = on;
}

void Port::openIdWindow(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  receiver_->openIdWindow();
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

uint32_t Port::sendBatch(const TxArrays& arrays, uint32_t from, uint32_t count) {
  const uint32_t taken = sender_->send(arrays, regions_, from, count);
  if (wantsWrite_) watchRoom();
  return taken;
}

uint32_t Port::receiveBatch(const RxArrays& arrays) {
  receiver_->begin(arrays);
  if (localCount_ == 1 && mailboxes_.empty()) {
    const auto only = std::find_if(locals_.begin(), locals_.end(), [](const auto& local) { return !!local; });
    const auto index = static_cast<uint32_t>(only - locals_.begin());
    const bool one = wantsOne();
    more_ = one && receiver_->drain(index, 1, true);
    // A datagram that held no packet does not count.
    if (!one || (more_ && receiver_->count() == 0)) do
        more_ = receiver_->drain(index, 1);
      while (more_);
    more_ = more_ || receiver_->full();
  } else {
    // The kernel's list of readable sockets goes round by itself.
    uint32_t ready[64];
    bool more = true;
    more_ = true;
    while (more) {
      const uint32_t number = waker_->readable(ready, 64);
      more = false;
      for (uint32_t i = 0; i < number; i++) {
        if (ready[i] == kMailbox) mail_ = true;
        if (localAt(ready[i]) != nullptr) more = receiver_->drain(ready[i], number - i) || more;
      }
    }
  }
  return receiver_->count();
}

void Port::wantWrite(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  wantsWrite_ = booleanArgument(info, 0, "on");
  watchRoom();
}

void Port::watchRoom() {
  const int fd = sender_->blockedFd();
  if (wantsWrite_ && sender_->blocked() && fd < 0)
    waker_->retryWrite();
  else
    waker_->watchWrite(wantsWrite_ ? fd : -1);
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
  setCounts(into, counts, kStatFields);
  setCount(into, "kernelDrops", drops);
  setCount(into, "transmitSockets", sockets);
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
  letGo();
}

}  // namespace roce
