#include "send.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "send_messages.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace roce {
namespace {

cmsghdr* putControl(msghdr& message, cmsghdr* at, int level, int type, const void* value, size_t length) {
  // Its length has fewer bits in musl than for the kernel.
  *at = cmsghdr{};
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(length);
  std::memcpy(CMSG_DATA(at), value, length);
  message.msg_controllen += CMSG_SPACE(length);
  return reinterpret_cast<cmsghdr*>(reinterpret_cast<uint8_t*>(at) + CMSG_SPACE(length));
}

/// Whether packets with these BTHs may share a run: of one service, so that readers of captures find the second one, and for one
/// program. Programs that share the peer's address have queue pairs of their own, and the kernel there looks at the first packet alone.
bool sameTarget(const std::array<uint8_t, 8>& a, const uint8_t* b) {
  const uint8_t* one = a.data() + kDestinationQpByte;
  const uint8_t* other = b + kDestinationQpByte;
  if ((a[0] ^ b[0]) >> 5 != 0) return false;
  return ((one[0] | other[0]) & kSharedQp) == 0 || one[2] == other[2];
}

}  // namespace

Sender::Sender(const Crc* const& crc, const Settings& settings, Stats& stats, PeerTable& peers,
               std::vector<std::unique_ptr<Local>>& locals)
    : crc_(crc),
      settings_(settings),
      stats_(stats),
      peers_(peers),
      locals_(locals),
      slots_(peers, stats.runSlots),
      staging_(new uint8_t[kStagingBytes]) {}

uint32_t Sender::send(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count) {
  slots_.begin(arrays, regions, from, count);
  blocked_ = false;
  full_ = nullptr;
  singlesUntil_ = 0;
  uint32_t slot = from;
  while (slot < count) {
    staged_ = messageCount_ = 0;
    while (slot < count && messageCount_ < kMessages && stagingLeft() >= kMaxDatagram)
      slot = build(slot, count);
    uint32_t resume;
    if (transmit(resume)) continue;
    slot = resume;
    slots_.seek(slot);
    if (blocked_) {
      stats_.sendBlocked++;
      break;
    }
  }
  return slot;
}

uint32_t Sender::build(uint32_t slot, uint32_t count) {
  TxPacket first;
  int errnum = slots_.read(slot, first);
  Message message{slot, 1, first.datagramBytes(), first.peer, nullptr};
  Peer* peer = nullptr;
  if (errnum == 0) {
    peer = peers_.at(first.peer);
    try {
      message.socket = &locals_[peer->local]->transmit.socketFor(first.sourcePort);
    } catch (const SystemFailure& failure) {
      errnum = failure.errnum;
    }
  }
  if (errnum != 0) {
    slots_.status(slot) = static_cast<uint32_t>(errnum);
    stats_.sendRejected++;
    return slot + 1;
  }

  msghdr& header = headers_[messageCount_].msg_hdr;
  header = msghdr{};
  header.msg_iov = iovecs_[messageCount_].data();
  gathering_ = &header;
  PseudoHeader pseudo(peer->source, peer->gid);
  pseudo.setPorts(message.socket->local().port(), peer->to.port());
  append(first, pseudo, 0);

  // Followers to the same place, as long as the first; a shorter one ends the run. Segment i leaves
  // with Identification i.
  const uint32_t segmentBytes = first.datagramBytes();
  std::array<uint8_t, 8> target;
  std::memcpy(target.data(), first.header, target.size());
  TxPacket packet;
  uint32_t next = slot + 1;
  if (settings_.gso && peer->gso && slot >= singlesUntil_ && message.socket->options().checksum) {
    for (bool open = true; open && next < count && message.packets < settings_.maxSegments; next++) {
      if (slots_.read(next, packet) != 0) break;
      const uint32_t bytes = packet.datagramBytes();
      if (packet.trafficClass != first.trafficClass || bytes > segmentBytes || message.bytes + bytes > kMaxDatagram ||
          bytes > stagingLeft() || !sameTarget(target, packet.header) || !sameRoute(first, packet, *message.socket))
        break;
      append(packet, pseudo, static_cast<uint16_t>(message.packets));
      message.packets++;
      message.bytes += bytes;
      open = bytes == segmentBytes;
    }
  }
  finish(message, first, *peer, segmentBytes);
  return next;
}

bool Sender::sameRoute(const TxPacket& first, const TxPacket& packet, const UdpSocket& socket) const {
  if (packet.peer == first.peer && packet.sourcePort == first.sourcePort) return true;
  const Peer& peer = *peers_.at(packet.peer);
  if (peer.way != peers_.at(first.peer)->way || !peer.gso) return false;
  if (packet.sourcePort == first.sourcePort) return true;
  // The port on the wire is the socket's, and few sockets are there for many queue pairs.
  try {
    return &locals_[peer.local]->transmit.socketFor(packet.sourcePort) == &socket;
  } catch (const SystemFailure&) {
    return false;  // Its own message reports it.
  }
}

uint8_t* Sender::stage(uint32_t length) {
  uint8_t* at = &staging_[staged_];
  staged_ += length;
  return at;
}

void Sender::gather(const uint8_t* data, uint32_t length) {
  if (gathering_->msg_iovlen > 0) {
    iovec& last = gathering_->msg_iov[gathering_->msg_iovlen - 1];
    if (static_cast<const uint8_t*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += length;
      return;
    }
  }
  gathering_->msg_iov[gathering_->msg_iovlen++] = {const_cast<uint8_t*>(data), length};
}

void Sender::append(const TxPacket& packet, PseudoHeader& pseudo, uint16_t ipId) {
  if (packet.datagramBytes() <= PseudoHeader::kShort) return appendShort(packet, pseudo, ipId);
  uint8_t* header = stage(packet.headerLength);
  std::memcpy(header, packet.header, packet.headerLength);
  gather(header, packet.headerLength);
  uint32_t state = pseudo.start(*crc_, packet.datagramBytes(), ipId, header, packet.headerLength);

  for (uint32_t i = 0; i < packet.pieceCount; i++) {
    const TxPiece& piece = slots_.piece(i);
    if (piece.shared || piece.length <= kInline) {
      uint8_t* copy = stage(piece.length);
      state = crc_->updateCopy(state, copy, piece.data, piece.length);
      gather(copy, piece.length);
    } else {
      state = crc_->update(state, piece.data, piece.length);
      gather(piece.data, piece.length);
    }
  }

  uint8_t* trailer = stage(packet.pad + kIcrcBytes);
  std::memset(trailer, 0, packet.pad);
  state = crc_->update(state, trailer, packet.pad);
  if (settings_.flushTwice && header[0] == kFlushOpcode)
    state = crc_->update(state, header, packet.headerLength);
  storeIcrc(trailer + packet.pad, ~state);
  gather(trailer, packet.pad + kIcrcBytes);
}

void Sender::appendShort(const TxPacket& packet, PseudoHeader& pseudo, uint16_t ipId) {
  const uint32_t bytes = packet.datagramBytes();
  uint8_t* datagram = stage(bytes);
  std::memcpy(datagram, packet.header, packet.headerLength);
  uint8_t* at = datagram + packet.headerLength;
  for (uint32_t i = 0; i < packet.pieceCount; i++) {
    const TxPiece& piece = slots_.piece(i);
    std::memcpy(at, piece.data, piece.length);
    at += piece.length;
  }
  std::memset(at, 0, packet.pad);
  uint32_t state = pseudo.over(*crc_, datagram, bytes, ipId);
  if (settings_.flushTwice && datagram[0] == kFlushOpcode) state = crc_->update(state, datagram, packet.headerLength);
  storeIcrc(at + packet.pad, ~state);
  gather(datagram, bytes);
}

void Sender::finish(const Message& message, const TxPacket& first, const Peer& peer, uint32_t segmentBytes) {
  msghdr& header = headers_[messageCount_].msg_hdr;
  header.msg_name = const_cast<sockaddr*>(&peer.to.to.any);
  header.msg_namelen = peer.to.length;

  const bool v6 = peer.to.isV6();
  const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int trafficClass = first.trafficClass, hopLimit = peer.hopLimit;
  const auto segment = static_cast<uint16_t>(segmentBytes);
  header.msg_control = control_[messageCount_].bytes;
  auto* at = reinterpret_cast<cmsghdr*>(header.msg_control);
  // The socket's default values need no control message: two of them cost 5 % of a datagram.
  if (trafficClass != 0)
    at = putControl(header, at, level, v6 ? IPV6_TCLASS : IP_TOS, &trafficClass, sizeof trafficClass);
  if (hopLimit != kUsualHopLimit)
    at = putControl(header, at, level, v6 ? IPV6_HOPLIMIT : IP_TTL, &hopLimit, sizeof hopLimit);
  if (message.packets > 1) putControl(header, at, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);

  messages_[messageCount_++] = message;
}

void Sender::setStatus(const Message& message, uint32_t status) {
  for (uint32_t i = 0; i < message.packets; i++)
    slots_.status(message.firstSlot + i) = status;
}

bool Sender::transmit(uint32_t& resume) {
  uint32_t at = 0;
  while (at < messageCount_) {
    UdpSocket* socket = messages_[at].socket;
    uint32_t end = at + 1;
    while (end < messageCount_ && messages_[end].socket == socket) end++;

    const int sent = sendMessages(socket->fd(), &headers_[at], end - at, MSG_DONTWAIT);
    if (sent > 0) {
      for (const uint32_t after = at + static_cast<uint32_t>(sent); at < after; at++) {
        const Message& message = messages_[at];
        setStatus(message, 0);
        stats_.txMessages++;
        stats_.txPackets += message.packets;
        stats_.txBytes += message.bytes;
        stats_.gsoRuns += message.packets > 1;
      }
      continue;
    }

    const Message& message = messages_[at];
    const int errnum = errno;
    resume = message.firstSlot;
    if (errnum == EINTR) continue;
    if (errnum == EAGAIN || errnum == EWOULDBLOCK || errnum == ENOBUFS || errnum == ENOMEM) {
      blocked_ = true;
      // Memory that ran out is not the socket's: it may report that it has room.
      if (errnum == EAGAIN || errnum == EWOULDBLOCK) full_ = socket;
      return false;
    }
    if (message.packets > 1 && (errnum == EIO || errnum == EINVAL || errnum == EMSGSIZE)) {
      // The way to this peer takes no GSO, or (EMSGSIZE) not packets of this size: build the packets
      // again, singly, with the Identification 0 that they will then carry.
      if (errnum != EMSGSIZE) peers_.at(message.peer)->gso = false;
      singlesUntil_ = message.firstSlot + message.packets;
      stats_.gsoFallbacks++;
      return false;
    }
    // This message's own trouble, such as no route to its peer: the others go on.
    setStatus(message, static_cast<uint32_t>(errnum));
    stats_.sendErrors += message.packets;
    at++;
  }
  return true;
}

}  // namespace roce
