// The JavaScript class FrameSocket: whole Ethernet frames of one interface, in batches (packet(7)). No protocol.
#pragma once
#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <optional>
#include <vector>

#include "arguments.h"
#include "regions.h"
#include "waker.h"

namespace roce {

class FrameSocket : public Napi::ObjectWrap<FrameSocket> {
 public:
  /// Bytes of slab that a received frame takes: the largest super-packet of the kernel's own, with a VLAN tag.
  static constexpr uint32_t kFrameRoom = 65'664;

  static void define(Napi::Env env, Napi::Object exports);
  explicit FrameSocket(const Napi::CallbackInfo& info);
  ~FrameSocket() override;

 private:
  static constexpr uint32_t kMessages = 64;
  /// Stretches of memory of one frame: a list has 32 elements at most.
  static constexpr uint32_t kPieces = 33;
  struct alignas(cmsghdr) Control {
    uint8_t bytes[64];
  };

  void setFilter(const Napi::CallbackInfo& info);
  Napi::Value send(const Napi::CallbackInfo& info);
  Napi::Value receive(const Napi::CallbackInfo& info);
  void wantRead(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);

  void expectOpen(Napi::Env env) const;
  void open(uint32_t receiveBuffer);
  void set(int level, int option, const void* value, size_t length);
  void readStatistics();
  void shut();
  /// Makes a message of a slot. @returns 0, or the errno that becomes its status
  int build(const uint32_t* slot, const Words& fragments, uint32_t message);
  /// Passes messages to the kernel, which are of the slots from `slot` on. @returns how many were dealt with
  uint32_t transmit(Words& slots, uint32_t slot, uint32_t count);

  napi_env env_;
  std::string interface_;
  int fd_ = -1;
  bool reading_ = false;
  bool blocked_ = false;
  std::optional<Waker> waker_;
  Napi::FunctionReference onWake_;
  Regions regions_;
  uint64_t received_ = 0;
  uint64_t dropped_ = 0;
  std::array<mmsghdr, kMessages> messages_{};
  std::array<std::array<iovec, kPieces>, kMessages> pieces_;
  std::array<Control, kMessages> control_;
};

}  // namespace roce
