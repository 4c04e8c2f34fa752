// The JavaScript class Port: the UDP sockets of one link, over what all ports have.
#pragma once
#include <napi.h>

#include <memory>
#include <vector>

#include "link_port.h"
#include "local.h"
#include "local_socket.h"
#include "receive.h"
#include "send.h"
#include "stats.h"

namespace roce {

class Port : public Napi::ObjectWrap<Port>, public LinkPort {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Port(const Napi::CallbackInfo& info);
  ~Port() override;

 private:
  Napi::Value addLocal(const Napi::CallbackInfo& info);
  void removeLocal(const Napi::CallbackInfo& info);
  void watch(const Napi::CallbackInfo& info);
  void unwatch(const Napi::CallbackInfo& info);
  Napi::Value takeMail(const Napi::CallbackInfo& info);
  void setPeerGso(const Napi::CallbackInfo& info);
  void stampArrivals(const Napi::CallbackInfo& info);
  void openIdWindow(const Napi::CallbackInfo& info);
  void wantWrite(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  Source sourceOf(uint32_t local) const override;
  uint32_t sendBatch(const TxArrays& arrays, uint32_t from, uint32_t count) override;
  uint32_t receiveBatch(const RxArrays& arrays) override;
  Local* localAt(uint32_t index) const { return index < locals_.size() ? locals_[index].get() : nullptr; }
  /// A socket of that address came or went: which one is the first?
  void findFirst(const Gid& address);
  /// Watches for the room that the last batch lacked, if that is wanted.
  void watchRoom();
  /// Frees tables and buffers, and takes them off the garbage collector's account. Needs no JavaScript.
  void freeMemory();

  TransmitPool::Settings transmitSettings_;
  Stats stats_;
  std::vector<std::unique_ptr<Local>> locals_;
  uint32_t localCount_ = 0;
  /// Local sockets that wake, and whether one of them was readable when the port last received.
  std::vector<std::shared_ptr<LocalDescriptor>> mailboxes_;
  bool mail_ = false;
  bool stamping_ = false;
  /// Drops of sockets that have been removed.
  uint64_t pastDrops_ = 0;
  std::unique_ptr<Sender> sender_;
  std::unique_ptr<Receiver> receiver_;
  bool wantsWrite_ = false;
};

}  // namespace roce
