#include "send.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace roce {
namespace {

/// A word of an array that another thread might be writing: read exactly once.
uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

cmsghdr* putControl(msghdr& message, cmsghdr* at, int level, int type, const void* value, size_t length) {
  at->cmsg_level = level;
  at->cmsg_type = type;
  at->cmsg_len = CMSG_LEN(length);
  std::memcpy(CMSG_DATA(at), value, length);
  message.msg_controllen += CMSG_SPACE(length);
  return reinterpret_cast<cmsghdr*>(reinterpret_cast<uint8_t*>(at) + CMSG_SPACE(length));
}

}  // namespace

Sender::Sender(const Crc* const& crc, const Settings& settings, Stats& stats, PeerTable& peers,
               std::vector<std::unique_ptr<Local>>& locals)
    : crc_(crc),
      settings_(settings),
      stats_(stats),
      peers_(peers),
      locals_(locals),
      staging_(new uint8_t[kStagingBytes]) {}

void Sender::wantRegions(const TxArrays& arrays, uint32_t from, uint32_t count, Regions& regions) {
  const size_t fragments = arrays.fragments.length / fragment::kWords;
  for (uint32_t slot = from; slot < count; slot++) {
    const uint32_t* words = arrays.slots.data + size_t{slot} * tx::kSlotWords;
    const uint32_t first = load(words[tx::fragmentFirst]), number = load(words[tx::fragmentCount]);
    if (first > fragments || number > fragments - first) continue;  // `readSlot` says so
    for (uint32_t i = first; i < first + number; i++)
      regions.want(load(arrays.fragments.data[size_t{i} * fragment::kWords + fragment::region]));
  }
}

uint32_t Sender::send(const TxArrays& arrays, const Regions& regions, uint32_t from, uint32_t count) {
  arrays_ = arrays;
  regions_ = &regions;
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
    if (blocked_) {
      stats_.sendBlocked++;
      break;
    }
  }
  return slot;
}

int Sender::readSlot(uint32_t slot, Packet& packet) {
  const uint32_t* words = arrays_.slots.data + size_t{slot} * tx::kSlotWords;
  const uint32_t headerOffset = load(words[tx::headerOffset]);
  packet.headerLength = load(words[tx::headerLength]);
  packet.payloadLength = load(words[tx::payloadLength]);
  packet.pad = load(words[tx::pad]);
  packet.peer = load(words[tx::peer]);
  const uint32_t trafficClass = load(words[tx::trafficClass]), sourcePort = load(words[tx::sourcePort]);
  const uint32_t first = load(words[tx::fragmentFirst]), count = load(words[tx::fragmentCount]);

  if (packet.headerLength < kBthBytes || packet.headerLength > kTxHeaderStride) return EINVAL;
  if (headerOffset > arrays_.headers.length || packet.headerLength > arrays_.headers.length - headerOffset)
    return EFAULT;
  if (packet.pad > 3 || trafficClass > 0xff || sourcePort > 0xffff) return EINVAL;
  if (packet.payloadLength > kMaxDatagram || packet.datagramBytes() > kMaxDatagram) return EMSGSIZE;
  if (peers_.at(packet.peer) == nullptr) return EINVAL;
  packet.header = arrays_.headers.data + headerOffset;
  packet.trafficClass = static_cast<uint8_t>(trafficClass);
  packet.sourcePort = static_cast<uint16_t>(sourcePort);

  const size_t fragments = arrays_.fragments.length / fragment::kWords;
  if (first > fragments || count > fragments - first) return EFAULT;
  uint64_t sum = 0;
  packet.pieceCount = 0;
  for (uint32_t i = first; i < first + count; i++) {
    const uint32_t* fields = arrays_.fragments.data + size_t{i} * fragment::kWords;
    const uint32_t length = load(fields[fragment::length]);
    if (length == 0) continue;
    const uint32_t region = load(fields[fragment::region]);
    const uint64_t offset =
        uint64_t{load(fields[fragment::offsetHigh])} << 32 | load(fields[fragment::offsetLow]);
    const Bytes memory = regions_->at(region);
    if (offset > memory.length || length > memory.length - offset) return EFAULT;
    if (packet.pieceCount == kPieces) return EINVAL;
    const bool shared = region < arrays_.regionShared.length && arrays_.regionShared.data[region] != 0;
    pieces_[packet.pieceCount++] = {memory.data + offset, length, shared};
    sum += length;
  }
  return sum == packet.payloadLength ? 0 : EINVAL;
}

uint32_t Sender::build(uint32_t slot, uint32_t count) {
  uint32_t& status = arrays_.slots.data[size_t{slot} * tx::kSlotWords + tx::status];
  Packet first;
  int errnum = readSlot(slot, first);
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
    status = static_cast<uint32_t>(errnum);
    stats_.sendRejected++;
    return slot + 1;
  }

  msghdr& header = headers_[messageCount_].msg_hdr;
  header = msghdr{};
  header.msg_iov = iovecs_[messageCount_].data();
  gathering_ = &header;
  PseudoHeader pseudo = peer->pseudo;
  pseudo.setPorts(message.socket->local().port(), peer->to.port());
  append(first, pseudo, 0);

  // Followers to the same place, as long as the first; a shorter one ends the run. Segment i leaves
  // with Identification i.
  const uint32_t segmentBytes = first.datagramBytes();
  uint32_t next = slot + 1;
  if (settings_.gso && peer->gso && slot >= singlesUntil_ && message.socket->options().checksum) {
    for (bool open = true; open && next < count && message.packets < settings_.maxSegments; next++) {
      Packet packet;
      if (readSlot(next, packet) != 0) break;
      const uint32_t bytes = packet.datagramBytes();
      // Programs that share the peer's address have queue pairs of their own: the kernel there looks at the first alone.
      if (packet.header[kDestinationQpByte] != first.header[kDestinationQpByte] || packet.peer != first.peer || packet.sourcePort != first.sourcePort ||
          packet.trafficClass != first.trafficClass || bytes > segmentBytes ||
          message.bytes + bytes > kMaxDatagram || bytes > stagingLeft())
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

void Sender::append(const Packet& packet, PseudoHeader& pseudo, uint16_t ipId) {
  uint8_t* header = stage(packet.headerLength);
  std::memcpy(header, packet.header, packet.headerLength);
  gather(header, packet.headerLength);
  uint32_t state = pseudo.start(*crc_, packet.datagramBytes(), ipId, header, packet.headerLength);

  for (uint32_t i = 0; i < packet.pieceCount; i++) {
    const Piece& piece = pieces_[i];
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

void Sender::finish(const Message& message, const Packet& first, const Peer& peer, uint32_t segmentBytes) {
  msghdr& header = headers_[messageCount_].msg_hdr;
  header.msg_name = const_cast<sockaddr*>(&peer.to.to.any);
  header.msg_namelen = peer.to.length;

  const bool v6 = peer.to.isV6();
  const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int trafficClass = first.trafficClass, hopLimit = peer.hopLimit;
  const auto segment = static_cast<uint16_t>(segmentBytes);
  header.msg_control = control_[messageCount_].bytes;
  auto* at = reinterpret_cast<cmsghdr*>(header.msg_control);
  // What the socket sends by itself needs no control message: two of them cost 5 % of a datagram.
  if (trafficClass != 0)
    at = putControl(header, at, level, v6 ? IPV6_TCLASS : IP_TOS, &trafficClass, sizeof trafficClass);
  if (hopLimit != kUsualHopLimit)
    at = putControl(header, at, level, v6 ? IPV6_HOPLIMIT : IP_TTL, &hopLimit, sizeof hopLimit);
  if (message.packets > 1) putControl(header, at, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment);

  messages_[messageCount_++] = message;
}

void Sender::setStatus(const Message& message, uint32_t status) {
  for (uint32_t i = 0; i < message.packets; i++)
    arrays_.slots.data[size_t{message.firstSlot + i} * tx::kSlotWords + tx::status] = status;
}

bool Sender::transmit(uint32_t& resume) {
  uint32_t at = 0;
  while (at < messageCount_) {
    UdpSocket* socket = messages_[at].socket;
    uint32_t end = at + 1;
    while (end < messageCount_ && messages_[end].socket == socket) end++;

    const int sent = sendmmsg(socket->fd(), &headers_[at], end - at, MSG_DONTWAIT);
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
      // Memory that ran out is not the socket's: it may say that it has room.
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
