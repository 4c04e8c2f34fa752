#include "frame_socket.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "callback.h"
#include "layout.h"
#include "send_messages.h"
#include "tx_slots.h"
#include "udp_socket.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace roce {
namespace {

/// Bytes of a VLAN tag, and where in the frame it stands.
constexpr uint32_t kTag = 4, kTagAt = 12;
/// Instructions that the kernel takes (BPF_MAXINSNS).
constexpr size_t kMostInstructions = 4096;

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

/// The VLAN tag that the kernel took out of the frame; false if it took none.
bool takenTag(msghdr& message, uint16_t& tpid, uint16_t& tci) {
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_PACKET || at->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata data;
    std::memcpy(&data, CMSG_DATA(at), sizeof data);
    if ((data.tp_status & TP_STATUS_VLAN_VALID) == 0) return false;
    tpid = (data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? data.tp_vlan_tpid : uint16_t{ETH_P_8021Q};
    tci = data.tp_vlan_tci;
    return true;
  }
  return false;
}

}  // namespace

void FrameSocket::define(Napi::Env env, Napi::Object exports) {
  exports.Set("FrameSocket", DefineClass(env, "FrameSocket",
                                         {
                                             InstanceMethod<&FrameSocket::setFilter>("setFilter"),
                                             InstanceMethod<&FrameSocket::send>("send"),
                                             InstanceMethod<&FrameSocket::receive>("receive"),
                                             InstanceMethod<&FrameSocket::wantRead>("wantRead"),
                                             InstanceMethod<&FrameSocket::stats>("stats"),
                                             InstanceMethod<&FrameSocket::close>("close"),
                                             StaticValue("FRAME_ROOM", Napi::Number::New(env, kFrameRoom)),
                                         }));
}

FrameSocket::FrameSocket(const Napi::CallbackInfo& info) : ObjectWrap(info), env_(info.Env()) {
  const Napi::Env env = info.Env();
  const Options options(env, info[0], "options");
  interface_ = options.string("interface", nullptr);
  if (interface_.empty() || interface_.size() >= IF_NAMESIZE || interface_.find('\0') != std::string::npos)
    throw rangeError(env, "interface must be a name of an interface");
  const uint32_t receiveBuffer = options.integer("receiveBuffer", 1u << 16, 1u << 30, 8u << 20);
  const Napi::Value onWake = options.get("onWake");
  if (!onWake.IsUndefined()) {
    if (!onWake.IsFunction()) throw typeError(env, "onWake must be a function");
    onWake_ = Napi::Persistent(onWake.As<Napi::Function>());
  }
  try {
    open(receiveBuffer);
    waker_.emplace(
        env,
        [](void* self, uint32_t events) {
          auto* socket = static_cast<FrameSocket*>(self);
          if (!socket->onWake_.IsEmpty()) callFromLoop(socket->env_, *socket, socket->onWake_, events);
        },
        this);
    // The device's link keeps the event loop alive, not this.
    waker_->setRef(false);
    waker_->start();
  } catch (const SystemFailure& failure) {
    shut();
    throw systemError(env, failure.errnum, failure.syscall, interface_);
  }
}

FrameSocket::~FrameSocket() {
  // The watch goes before the descriptor. The environment may be going: nothing here may need JavaScript.
  waker_.reset();
  shut();
}

void FrameSocket::open(uint32_t receiveBuffer) {
  // Without a protocol it hears nothing until it is bound, behind its filter.
  fd_ = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw SystemFailure{errno, "socket"};
  ifreq request{};
  interface_.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(fd_, SIOCGIFINDEX, &request) != 0) throw SystemFailure{errno, "ioctl"};
  const int index = request.ifr_ifindex;
  if (ioctl(fd_, SIOCGIFHWADDR, &request) != 0) throw SystemFailure{errno, "ioctl"};
  const int type = request.ifr_hwaddr.sa_family;
  if (type != ARPHRD_ETHER && type != ARPHRD_LOOPBACK) throw SystemFailure{EPROTONOSUPPORT, "bind"};

  const int on = 1;
  set(SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
  // Linux 4.20; before, `receive` passes over them.
  setsockopt(fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
  const int bytes = static_cast<int>(receiveBuffer);
  if (setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
    set(SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &nothing};
  set(SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) throw SystemFailure{errno, "bind"};
}

void FrameSocket::set(int level, int option, const void* value, size_t length) {
  if (setsockopt(fd_, level, option, value, static_cast<socklen_t>(length)) != 0)
    throw SystemFailure{errno, "setsockopt"};
}

void FrameSocket::shut() {
  if (fd_ < 0) return;
  readStatistics();
  ::close(fd_);
  fd_ = -1;
}

void FrameSocket::expectOpen(Napi::Env env) const {
  if (fd_ >= 0) return;
  Napi::Error error = Napi::Error::New(env, "the socket is closed");
  error.Value().Set("code", "ERR_ROCE_SOCKET_CLOSED");
  throw error;
}

/// setFilter(program): two words an instruction, `code | jt << 16 | jf << 24` and `k`.
void FrameSocket::setFilter(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Words words = wordsArgument(info, 0, "program");
  if (words.length == 0 || words.length % 2 != 0 || words.length / 2 > kMostInstructions)
    throw rangeError(env, "program must have 1 to 4096 instructions of two words");
  std::vector<sock_filter> code;
  code.reserve(words.length / 2);
  for (size_t i = 0; i < words.length; i += 2) {
    const uint32_t first = words.data[i];
    code.push_back({static_cast<uint16_t>(first), static_cast<uint8_t>(first >> 16), static_cast<uint8_t>(first >> 24),
                    words.data[i + 1]});
  }
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
    throw systemError(env, errno, "setsockopt", interface_);
}

int FrameSocket::build(const uint32_t* slot, const Words& fragments, uint32_t message) {
  const uint32_t first = load(slot[tx::fragmentFirst]), count = load(slot[tx::fragmentCount]);
  const size_t all = fragments.length / fragment::kWords;
  if (first > all || count > all - first) return EFAULT;
  auto& pieces = pieces_[message];
  uint32_t used = 0;
  for (uint32_t i = first; i < first + count; i++) {
    const uint32_t* fields = fragments.data + size_t{i} * fragment::kWords;
    const uint32_t length = load(fields[fragment::length]);
    if (length == 0) continue;
    const uint64_t offset = uint64_t{load(fields[fragment::offsetHigh])} << 32 | load(fields[fragment::offsetLow]);
    const Bytes memory = regions_.at(load(fields[fragment::region]));
    if (offset > memory.length || length > memory.length - offset) return EFAULT;
    if (used == kPieces) return EINVAL;
    pieces[used++] = {memory.data + offset, length};
  }
  messages_[message].msg_hdr = {};
  messages_[message].msg_hdr.msg_iov = pieces.data();
  messages_[message].msg_hdr.msg_iovlen = used;
  return 0;
}

uint32_t FrameSocket::transmit(Words& slots, uint32_t slot, uint32_t count) {
  uint32_t done = 0;
  const auto finish = [&](uint32_t status) {
    slots.data[(size_t{slot} + done++) * tx::kSlotWords + tx::status] = status;
  };
  while (done < count) {
    const int sent = sendMessages(fd_, messages_.data() + done, count - done, MSG_DONTWAIT);
    if (sent > 0) {
      for (int i = 0; i < sent; i++) finish(0);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) {
      blocked_ = true;
      if (errno == EAGAIN) waker_->watchWrite(fd_);
      else waker_->retryWrite();
      return done;
    }
    finish(errno);
  }
  return done;
}

/// send(slots, fragments, from, count, regionViews): the first slot that was not taken.
Napi::Value FrameSocket::send(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  Words slots = wordsArgument(info, 0, "slots");
  const Words wanted = wordsArgument(info, 1, "fragments");
  const uint32_t count = integerArgument(info, 3, "count", 0x7fff'ffff);
  const uint32_t from = integerArgument(info, 2, "from", count);
  if (count > slots.length / tx::kSlotWords) throw rangeError(env, "count must be at most the slots");
  if (blocked_) {
    blocked_ = false;
    waker_->watchWrite(-1);
  }
  regions_.begin(env, info[4]);
  TxSlots::wantRegions({slots, {}, wanted, {}}, from, count, regions_);
  if (!regions_.fetch()) return {};
  // A getter among the views may have run JavaScript: addresses are read after that.
  slots = wordsArgument(info, 0, "slots");
  const Words fragments = wordsArgument(info, 1, "fragments");
  if (fd_ < 0 || count > slots.length / tx::kSlotWords) return Napi::Number::New(env, from);

  uint32_t slot = from;
  while (slot < count) {
    uint32_t built = 0;
    int wrong = 0;
    while (slot + built < count && built < kMessages && wrong == 0) {
      wrong = build(slots.data + (size_t{slot} + built) * tx::kSlotWords, fragments, built);
      if (wrong == 0) built++;
    }
    const uint32_t done = transmit(slots, slot, built);
    slot += done;
    if (done < built) break;
    if (wrong != 0) slots.data[size_t{slot++} * tx::kSlotWords + tx::status] = static_cast<uint32_t>(wrong);
  }
  return Napi::Number::New(env, slot);
}

/// receive(slab, slots, most): frames copied, of `most` at most; a frame that did not fit has length 0.
Napi::Value FrameSocket::receive(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  expectOpen(env);
  const Bytes slab = bytesArgument(info, 0, "slab");
  const Words slots = wordsArgument(info, 1, "slots");
  uint32_t most = integerArgument(info, 2, "most", 0x7fff'ffff);
  most = static_cast<uint32_t>(std::min<size_t>({most, kMessages, slab.length / kFrameRoom, slots.length / frame::kSlotWords}));
  if (most == 0) return Napi::Number::New(env, 0);
  std::array<sockaddr_ll, kMessages> from;
  for (uint32_t i = 0; i < most; i++) {
    // Room for a tag before the frame: the addresses move there.
    pieces_[i][0] = {slab.data + size_t{i} * kFrameRoom + kTag, kFrameRoom - kTag};
    messages_[i].msg_hdr = {};
    messages_[i].msg_hdr.msg_name = &from[i];
    messages_[i].msg_hdr.msg_namelen = sizeof from[i];
    messages_[i].msg_hdr.msg_iov = pieces_[i].data();
    messages_[i].msg_hdr.msg_iovlen = 1;
    messages_[i].msg_hdr.msg_control = control_[i].bytes;
    messages_[i].msg_hdr.msg_controllen = sizeof control_[i].bytes;
  }
  int taken;
  do taken = recvmmsg(fd_, messages_.data(), most, MSG_DONTWAIT, nullptr);
  while (taken < 0 && errno == EINTR);
  // ENETDOWN is reported once, when the interface goes down; it may come back.
  if (taken < 0) return Napi::Number::New(env, 0);
  uint32_t count = 0;
  for (int i = 0; i < taken; i++) {
    if (from[i].sll_pkttype == PACKET_OUTGOING) continue;
    uint8_t* start = slab.data + size_t(i) * kFrameRoom;
    uint32_t offset = static_cast<uint32_t>(i) * kFrameRoom + kTag;
    uint32_t length = messages_[i].msg_len;
    uint16_t tpid, tci;
    if ((messages_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) {
      length = 0;
    } else if (length >= kTagAt && takenTag(messages_[i].msg_hdr, tpid, tci)) {
      std::memmove(start, start + kTag, kTagAt);
      const uint8_t tag[kTag] = {uint8_t(tpid >> 8), uint8_t(tpid), uint8_t(tci >> 8), uint8_t(tci)};
      std::memcpy(start + kTagAt, tag, kTag);
      offset -= kTag;
      length += kTag;
    }
    uint32_t* slot = slots.data + size_t{count++} * frame::kSlotWords;
    slot[frame::offset] = offset;
    slot[frame::length] = length;
  }
  // A batch of frames of our own only: there may be others behind them.
  if (count == 0 && static_cast<uint32_t>(taken) == most) return receive(info);
  return Napi::Number::New(env, count);
}

/// wantRead(on): whether `onWake` is called while there are frames.
void FrameSocket::wantRead(const Napi::CallbackInfo& info) {
  expectOpen(info.Env());
  const bool on = info[0].ToBoolean();
  if (on == reading_) return;
  try {
    if (on) waker_->watch(fd_, 0);
    else waker_->unwatch(fd_);
    reading_ = on;
  } catch (const SystemFailure& failure) {
    throw systemError(info.Env(), failure.errnum, failure.syscall, interface_);
  }
}

/// The kernel's counts start anew with each reading, and those received include those dropped.
void FrameSocket::readStatistics() {
  tpacket_stats statistics{};
  socklen_t length = sizeof statistics;
  if (fd_ < 0 || getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) != 0) return;
  received_ += statistics.tp_packets;
  dropped_ += statistics.tp_drops;
}

Napi::Value FrameSocket::stats(const Napi::CallbackInfo& info) {
  readStatistics();
  Napi::Object object = Napi::Object::New(info.Env());
  object.Set("received", Napi::Number::New(info.Env(), static_cast<double>(received_)));
  object.Set("dropped", Napi::Number::New(info.Env(), static_cast<double>(dropped_)));
  return object;
}

void FrameSocket::close(const Napi::CallbackInfo&) {
  waker_.reset();
  onWake_.Reset();
  shut();
}

}  // namespace roce
