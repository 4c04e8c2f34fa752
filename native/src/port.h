// The JavaScript class Port: the sockets, peers, batches and wake-ups of one link.
#pragma once
#include <napi.h>

#include <memory>
#include <optional>
#include <vector>

#include "local.h"
#include "local_socket.h"
#include "peers.h"
#include "receive.h"
#include "regions.h"
#include "send.h"
#include "stats.h"
#include "waker.h"

namespace roce {

class Port : public Napi::ObjectWrap<Port> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Port(const Napi::CallbackInfo& info);
  ~Port() override;

 private:
  Napi::Value addLocal(const Napi::CallbackInfo& info);
  void removeLocal(const Napi::CallbackInfo& info);
  Napi::Value addPeer(const Napi::CallbackInfo& info);
  void removePeer(const Napi::CallbackInfo& info);
  void watch(const Napi::CallbackInfo& info);
  void unwatch(const Napi::CallbackInfo& info);
  Napi::Value takeMail(const Napi::CallbackInfo& info);
  void setPeerGso(const Napi::CallbackInfo& info);
  void setClock(const Napi::CallbackInfo& info);
  void stampArrivals(const Napi::CallbackInfo& info);
  Napi::Value send(const Napi::CallbackInfo& info);
  Napi::Value receive(const Napi::CallbackInfo& info);
  void setDeadline(const Napi::CallbackInfo& info);
  void wantWrite(const Napi::CallbackInfo& info);
  void start(const Napi::CallbackInfo& info);
  void stop(const Napi::CallbackInfo& info);
  void ref(const Napi::CallbackInfo& info);
  void unref(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  void expectOpen(Napi::Env env) const;
  /// Writes the time to the array of `setClock`, if there is one.
  void writeTime() const;
  Peer& peerArgument(const Napi::CallbackInfo& info, size_t index);
  Local* localAt(uint32_t index) { return index < locals_.size() ? locals_[index].get() : nullptr; }
  void wake(uint32_t events);
  /// Watches for the room that the last batch lacked, if that is wanted.
  void watchRoom();
  /// Lets go of what keeps the object alive while it is started.
  void release();
  /// Frees tables and buffers, and takes them off the garbage collector's account. Needs no JavaScript.
  void freeMemory();

  napi_env env_;
  const Crc* const& crc_;
  TransmitPool::Settings transmitSettings_;
  Stats stats_;
  PeerTable peers_;
  std::vector<std::unique_ptr<Local>> locals_;
  uint32_t localCount_ = 0;
  /// Local sockets that wake, and whether one of them was readable when the port last received.
  std::vector<std::shared_ptr<LocalDescriptor>> mailboxes_;
  bool mail_ = false;
  bool stamping_ = false;
  uint32_t maxPeers_;
  double timeOrigin_ = 0;
  /// The element that gets the time of a batch; `clock_` keeps its memory.
  double* time_ = nullptr;
  Napi::ObjectReference clock_;
  /// Drops of sockets that have been removed.
  uint64_t pastDrops_ = 0;
  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
  Regions regions_;
  std::optional<Waker> waker_;
  Napi::FunctionReference onWake_;
  bool held_ = false;
  bool wantsWrite_ = false;
};

}  // namespace roce
