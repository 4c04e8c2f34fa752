// The JavaScript class XdpPort: AF_XDP sockets on the queues of an interface and their filter, over what all ports have.
#pragma once
#include <napi.h>

#include <memory>
#include <optional>
#include <vector>

#include "link_port.h"
#include "xdp_filter.h"
#include "xdp_receive.h"
#include "xdp_send.h"
#include "xdp_socket.h"
#include "xdp_stats.h"
#include "xdp_ways.h"

namespace roce {

class XdpPort : public Napi::ObjectWrap<XdpPort>, public LinkPort {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit XdpPort(const Napi::CallbackInfo& info);
  ~XdpPort() override;

 private:
  /// Memory that sockets and JavaScript share: it goes with the last of them.
  struct Memory;

  Napi::Value memory(const Napi::CallbackInfo& info);
  Napi::Value fragments(const Napi::CallbackInfo& info);
  Napi::Value addLocal(const Napi::CallbackInfo& info);
  void removeLocal(const Napi::CallbackInfo& info);
  void setQueuePair(const Napi::CallbackInfo& info);
  void wantWrite(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  struct Opening {
    XdpMode mode;
    XdpCopying copying;
    uint32_t queues, receiveChunks, sendSlots, slotBytes;
    bool waits, flushTwiceIn, flushTwiceOut;
  };
  Source sourceOf(uint32_t local) const override;
  uint32_t sendBatch(const TxArrays& arrays, uint32_t from, uint32_t count) override;
  uint32_t receiveBatch(const RxArrays& arrays) override;
  void peerAdded(uint32_t index, const Gid& source) override;
  void woken() override;
  void open(const Opening& opening);
  /// Reads what the interface is by now: its MAC address and MTU. @throws SystemFailure
  void readInterface();
  /// Takes in the kernel's events since the last read.
  void refresh();
  /// Wakes once a millisecond while `more`: there are frames that the kernel has to be asked to take again.
  void retry(bool more);
  /// Needs no JavaScript.
  void shut();
  void countDrops(uint64_t (&drops)[5]) const;

  std::string interface_;
  int interfaceIndex_ = 0;
  /// Of the interface's receive queues, when the port was opened: packets that come in at them are lost.
  uint32_t queuesWithoutSocket_ = 0;
  bool ethernet_ = true;
  uint16_t port_ = 0;
  XdpStats stats_;
  struct Local {
    Gid gid;
    bool live;
  };
  std::vector<Local> locals_;
  LocalIndex localIndex_;
  QueuePairs queuePairs_;
  std::shared_ptr<Memory> memory_;
  std::optional<XdpFilter> filter_;
  std::vector<std::unique_ptr<XdpSocket>> sockets_;
  std::optional<XdpWays> ways_;
  std::unique_ptr<XdpSender> sender_;
  std::unique_ptr<XdpReceiver> receiver_;
  /// Looped packets that the last batch had.
  size_t loopTaken_ = 0;
  uint32_t nextQueue_ = 0;
  uint32_t refreshedMs_ = 0;
  uint64_t pastDrops_[5] = {};
  bool wantsWrite_ = false;
  /// Whether the waker wakes for `retry`, or for who waits for room.
  bool retrying_ = false;
};

}  // namespace roce
