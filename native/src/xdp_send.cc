#include "xdp_send.h"

#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "clock.h"
#include "network_order.h"

namespace roce {
namespace {

// Linux 6.6; older headers lack it (linux/if_xdp.h).
constexpr uint32_t kContinued = 1;
/// The kernel's raw sockets change an Identification of 0 (raw(7)).
constexpr uint16_t kKernelsId = 1;
/// Calls without progress before what is left waits for later.
constexpr int kIdleKicks = 2;

}  // namespace

XdpSender::XdpSender(const Crc* const& crc, const Settings& settings, XdpStats& stats, PeerTable& peers, XdpWays& ways,
                     XdpSocket& socket)
    : crc_(crc),
      settings_(settings),
      stats_(stats),
      peers_(peers),
      ways_(ways),
      socket_(socket),
      slots_(peers, runs_),
      pending_(settings.sendSlots) {
  for (uint32_t i = settings.sendSlots; i > 0; i--) free_.push_back(i - 1);
}

XdpSender::~XdpSender() {
  for (const int fd : {raw4_, raw6_})
    if (fd >= 0) close(fd);
}

uint32_t XdpSender::send(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count) {
  slots_.begin(arrays, regions, from, count);
  blocked_ = false;
  const uint32_t now = coarseMs();
  uint32_t index = from;
  for (; index < count; index++) {
    TxPacket packet;
    int errnum = slots_.read(index, packet);
    if (errnum == 0) {
      Peer& peer = *peers_.at(packet.peer);
      XdpWay& way = ways_.at(packet.peer);
      const uint32_t bytes = packet.datagramBytes();
      if (bytes + way.headerBytes - ETH_HLEN > mtu_ || bytes + way.headerBytes > socket_.slotBytes()) {
        errnum = EMSGSIZE;
      } else if (way.kind == XdpWay::loop) {
        errnum = loop(packet, peer, way);
      } else if (way.kind == XdpWay::kernel || !way.known) {
        // Of `wire`, the kernel resolves the neighbour, and keeps the packet until it has.
        missed_ = missed_ || way.kind == XdpWay::wire;
        errnum = throughKernel(packet, peer, way);
      } else if (index + 1 < count || !check(packet, peer, way, now)) {
        uint32_t slot;
        if (!takeSlot(slot)) {
          blocked_ = true;
          stats_.sendBlocked++;
          break;
        }
        publish(slot, build(socket_.slotMemory(slot), packet, peer, way, 0));
      }
      if (errnum == 0) {
        stats_.txPackets++;
        stats_.txBytes += bytes;
      } else {
        stats_.sendErrors++;
      }
    } else {
      stats_.sendRejected++;
    }
    slots_.status(index) = static_cast<uint32_t>(errnum);
  }
  kick();
  return index;
}

bool XdpSender::takeSlot(uint32_t& slot) {
  if (free_.empty()) reap();
  if (free_.empty()) {
    kick();
    reap();
  }
  if (free_.empty()) return false;
  slot = free_.back();
  free_.pop_back();
  return true;
}

void XdpSender::reap() {
  const XdpRing& ring = socket_.completed();
  const uint32_t end = ring.endFrom(completed_);
  for (; completed_ != end; completed_++) {
    const uint32_t slot = socket_.slotOf(ring.address(completed_));
    if (slot != XdpSocket::kNoSlot && pending_[slot] > 0 && --pending_[slot] == 0) free_.push_back(slot);
  }
  ring.storeConsumer(completed_);
}

void XdpSender::publish(uint32_t slot, uint32_t bytes) {
  const XdpRing& ring = socket_.sending();
  uint64_t address = socket_.slotAddress(slot);
  for (uint32_t left = bytes; left > 0;) {
    const uint32_t length = left > XdpSocket::kChunk ? XdpSocket::kChunk : left;
    left -= length;
    ring.descriptor(produced_++) = {address, length, left > 0 ? kContinued : 0};
    address += length;
    pending_[slot]++;
  }
  if (++unkicked_ >= kBurst) kick();
}

bool XdpSender::kick() {
  const XdpRing& ring = socket_.sending();
  unkicked_ = 0;
  ring.storeProducer(produced_);
  uint32_t taken = ring.loadConsumer();
  for (int idle = 0; taken != produced_ && idle < kIdleKicks;) {
    if (!socket_.sleeps()) return true;
    if (sendto(socket_.fd(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0 && errno != EAGAIN && errno != EBUSY &&
        errno != ENOBUFS && errno != EINTR)
      return false;
    const uint32_t now = ring.loadConsumer();
    idle = now == taken ? idle + 1 : 0;
    taken = now;
  }
  return taken == produced_;
}

uint32_t XdpSender::build(uint8_t* frame, const TxPacket& packet, const Peer& peer, const XdpWay& way, uint16_t ipId) {
  std::memcpy(frame, way.header.data(), way.headerBytes);
  uint8_t* ip = frame + ETH_HLEN;
  uint8_t* payload = frame + way.headerBytes;
  uint8_t* udp = payload - 8;
  const uint32_t bytes = packet.datagramBytes();
  if (!isMappedV4(peer.gid)) {
    ip[0] = static_cast<uint8_t>(ip[0] | packet.trafficClass >> 4);
    ip[1] = static_cast<uint8_t>(packet.trafficClass << 4);
    put16(ip + 4, bytes + 8);
  } else {
    ip[1] = packet.trafficClass;
    put16(ip + 2, bytes + 28);
    put16(ip + 4, ipId);
    uint32_t sum = way.sum + packet.trafficClass + bytes + 28 + ipId;
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~(sum + (sum >> 16)));
  }
  put16(udp, packet.sourcePort);
  put16(udp + 4, bytes + 8);

  PseudoHeader pseudo(peer.source, peer.gid);
  pseudo.setPorts(packet.sourcePort, peer.to.port());
  std::memcpy(payload, packet.header, packet.headerLength);
  uint32_t state = pseudo.start(*crc_, bytes, ipId, payload, packet.headerLength);
  uint8_t* to = payload + packet.headerLength;
  for (uint32_t i = 0; i < packet.pieceCount; i++) {
    const TxPiece& piece = slots_.piece(i);
    state = crc_->updateCopy(state, to, piece.data, piece.length);
    to += piece.length;
  }
  std::memset(to, 0, packet.pad);
  state = crc_->update(state, to, packet.pad);
  if (settings_.flushTwice && payload[0] == kFlushOpcode) state = crc_->update(state, payload, packet.headerLength);
  storeIcrc(to + packet.pad, ~state);
  return way.headerBytes + bytes;
}

int XdpSender::loop(const TxPacket& packet, const Peer& peer, const XdpWay& way) {
  if (way.headerBytes + packet.datagramBytes() > kLoopStride) return EMSGSIZE;
  if (loopUsed_ == settings_.loopSlots) {
    stats_.loopDrops++;
    return 0;
  }
  uint8_t* frame = settings_.loop + size_t{loopNext_} * kLoopStride;
  loopNext_ = (loopNext_ + 1) % settings_.loopSlots;
  loopUsed_++;
  looped_.push_back({frame, build(frame, packet, peer, way, 0)});
  stats_.txLooped++;
  return 0;
}

void XdpSender::recycle(size_t number) {
  looped_.erase(looped_.begin(), looped_.begin() + static_cast<ptrdiff_t>(number));
  loopUsed_ -= static_cast<uint32_t>(number);
}

// AF_XDP traffic is no reason for the kernel to check a neighbour, a packet of its own is: its output path alone knows which entries
// are to be left as they are (NUD_PERMANENT, NUD_NOARP). Frames and that packet may leave by different queues of the interface. So it
// is the last one of a batch and, if there is such a moment, leaves when no frame is on its way any more. Where frames always are,
// it may overtake some of them, once in 2 * kCheckMs: a reliable peer asks for those again (NAK, IBTA vol 1 §9.7.5.1.3).
bool XdpSender::check(const TxPacket& packet, const Peer& peer, const XdpWay& way, uint32_t nowMs) {
  const uint32_t age = nowMs - way.checkedMs;
  if (age < XdpWays::kCheckMs || isMulticast(way.hop)) return false;
  kick();
  reap();
  if (free_.size() < settings_.sendSlots && age < 2 * XdpWays::kCheckMs) return false;
  ways_.checked(way.hop, nowMs);
  return throughKernel(packet, peer, way) == 0;
}

int XdpSender::throughKernel(const TxPacket& packet, const Peer& peer, const XdpWay& way) {
  const bool v6 = !isMappedV4(peer.gid);
  int& fd = v6 ? raw6_ : raw4_;
  if (fd < 0) fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW);
  if (fd < 0) return errno;
  if (isMulticast(peer.gid)) return EHOSTUNREACH;
  staging_.resize(way.headerBytes + packet.datagramBytes());
  const uint32_t bytes = build(staging_.data(), packet, peer, way, v6 ? 0 : kKernelsId);
  Endpoint to = peer.to;
  to.setPort(0);
  if (sendto(fd, staging_.data() + ETH_HLEN, bytes - ETH_HLEN, MSG_DONTWAIT, &to.to.any, to.length) < 0) {
    // A full queue drops, as a wire does.
    if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) return errno;
  }
  stats_.txThroughKernel++;
  return 0;
}

}  // namespace roce
