// The base of the ports of all links: wake-ups, the clock, peers, and JavaScript's methods on these.
#pragma once
#include <napi.h>

#include <optional>
#include <vector>

#include "arguments.h"
#include "crc.h"
#include "peers.h"
#include "regions.h"
#include "rx_slots.h"
#include "stats.h"
#include "tx_slots.h"
#include "waker.h"

namespace roce {

/// The base of classes that JavaScript knows as well: `class P : public Napi::ObjectWrap<P>, public LinkPort`. Nothing virtual is
/// called for a packet.
class LinkPort {
 protected:
  using Info = Napi::CallbackInfo;
  static constexpr uint32_t kMostLocals = 1024;
  /// Written by JavaScript to the second element of `time_` before a receive.
  static constexpr double kOne = 2;

  /// Reads the options that all ports have: `maxPeers`, `timeOrigin`, `onWake`.
  /// @param self the JavaScript object
  LinkPort(Napi::Reference<Napi::Object>& self, const Info& info);
  virtual ~LinkPort() = default;
  LinkPort(const LinkPort&) = delete;
  LinkPort& operator=(const LinkPort&) = delete;

  /// Adds the methods of this class to those of a class over it.
  template <class Class>
  static std::vector<Napi::ClassPropertyDescriptor<Class>> withMethods(
      std::vector<Napi::ClassPropertyDescriptor<Class>> own) {
    using Wrap = Napi::InstanceWrap<Class>;
    const std::vector<Napi::ClassPropertyDescriptor<Class>> all{
        Wrap::InstanceMethod("addPeer", &LinkPort::addPeer),
        Wrap::InstanceMethod("removePeer", &LinkPort::removePeer),
        Wrap::InstanceMethod("setClock", &LinkPort::setClock),
        Wrap::InstanceMethod("send", &LinkPort::send),
        Wrap::InstanceMethod("receive", &LinkPort::receive),
        Wrap::InstanceMethod("sender", &LinkPort::sender),
        Wrap::InstanceMethod("receiver", &LinkPort::receiver),
        Wrap::InstanceMethod("setDeadline", &LinkPort::setDeadline),
        Wrap::InstanceMethod("start", &LinkPort::start),
        Wrap::InstanceMethod("stop", &LinkPort::stop),
        Wrap::InstanceMethod("ref", &LinkPort::ref),
        Wrap::InstanceMethod("unref", &LinkPort::unref),
    };
    own.insert(own.end(), all.begin(), all.end());
    return own;
  }

  /// A local address that packets leave from; `gid` is nullptr where there is none of that index.
  struct Source {
    const Gid* gid;
    /// Of link-local IPv6 addresses.
    uint32_t scope;
  };
  virtual Source sourceOf(uint32_t local) const = 0;
  /// A peer was added.
  virtual void peerAdded(uint32_t index, const Gid& source) {}
  /// Called before `onWake` is.
  virtual void woken() {}
  /// Sends slots `from` … `count` - 1, whose regions are fetched. @returns the first slot not taken
  virtual uint32_t sendBatch(const TxArrays& arrays, uint32_t from, uint32_t count) = 0;
  /// @returns packets received
  virtual uint32_t receiveBatch(const RxArrays& arrays) = 0;

  void expectOpen(Napi::Env env) const;
  Peer& peerArgument(const Info& info, size_t index);
  /// The index of a local address that no peer refers to.
  uint32_t freeLocalArgument(const Info& info);
  static bool booleanArgument(const Info& info, size_t index, const char* name);

  /// @throws SystemFailure
  void openWaker();
  /// Writes the time, and `more_`, to the array of `setClock`, if there is one.
  void writeTime() const;
  /// Whether the caller of a receive has written there that it will have enough with one datagram.
  bool wantsOne() const { return time_ != nullptr && time_[1] == kOne; }
  /// Lets go of what JavaScript gave, once the waker is gone.
  void letGo();
  template <class Counts, size_t N>
  static void setCounts(Napi::Object into, const Counts& counts, const StatField<Counts> (&fields)[N]) {
    for (const auto& [name, count] : fields) setCount(into, name, counts.*count);
  }
  static void setCount(Napi::Object into, const char* name, uint64_t count);

  napi_env env_;
  const Crc* const& crc_;
  PeerTable peers_;
  Regions regions_;
  /// There while the port is open.
  std::optional<Waker> waker_;
  /// Whether there may be more than the last batch received.
  bool more_ = true;

 private:
  struct BoundSend;
  struct BoundReceive;

  Napi::Value send(const Info& info);
  Napi::Value receive(const Info& info);
  Napi::Value sender(const Info& info);
  Napi::Value receiver(const Info& info);
  /// Sends, and writes the time.
  uint32_t sendNow(const TxArrays& arrays, uint32_t from, uint32_t count);
  uint32_t receiveNow(const RxArrays& arrays);
  /// Fetches the regions that slots need, once `regions_` has begun. May run JavaScript, which may close the port.
  /// @returns false with an exception pending
  bool fetchRegions(Napi::Env env, const TxArrays& arrays, uint32_t from, uint32_t count);
  static RxArrays readReceiving(const Info& info);
  static void expectRoom(Napi::Env env, const TxArrays& arrays, uint32_t from, uint32_t count);

  Napi::Value addPeer(const Info& info);
  void removePeer(const Info& info);
  void setClock(const Info& info);
  void setDeadline(const Info& info);
  void start(const Info& info);
  void stop(const Info& info);
  void ref(const Info& info);
  void unref(const Info& info);
  /// Lets go of what keeps the object alive while it is started.
  void release();

  Napi::Reference<Napi::Object>& self_;
  uint32_t maxPeers_;
  double timeOrigin_ = 0;
  /// The elements that get the time of a batch and `more_`; `clock_` keeps their memory.
  double* time_ = nullptr;
  Napi::ObjectReference clock_;
  Napi::FunctionReference onWake_;
  bool held_ = false;
};

}  // namespace roce
