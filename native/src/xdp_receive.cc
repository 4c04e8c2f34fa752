#include "xdp_receive.h"

#include <linux/if_ether.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "network_order.h"

namespace roce {
namespace {

// Linux 6.6; older headers lack it (linux/if_xdp.h).
constexpr uint32_t kContinued = 1;
constexpr uint32_t kUdpBytes = 8;

/// RFC 1071: 0xffff over a header with its checksum.
bool hasRightChecksum(const uint8_t* header, uint32_t length) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < length; i += 2) sum += get16(header + i);
  sum = (sum & 0xffff) + (sum >> 16);
  return sum + (sum >> 16) == 0xffff;
}

Gid mappedV4(const uint8_t* address) {
  Gid gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::memcpy(gid.data() + 12, address, 4);
  return gid;
}

uint32_t get24(const uint8_t* at) { return get16(at) << 8 | at[2]; }

/// Whether two BTHs are of one queue pair, the second right behind the first (IBTA vol 1 §9.2).
bool isNext(const uint8_t* bth, const uint8_t* next) {
  constexpr uint32_t kPsnByte = 9, kPsns = 1u << 24;
  return get24(next + kDestinationQpByte) == get24(bth + kDestinationQpByte) &&
         get24(next + kPsnByte) == (get24(bth + kPsnByte) + 1) % kPsns;
}

}  // namespace

void XdpReceiver::begin(const RxArrays& arrays) {
  for (const Held& held : held_) {
    for (uint32_t at = held.from; at != held.to; at++) held.socket->refill(held.socket->received().descriptor(at));
    // The descriptors may be overwritten only now: until here they listed the chunks.
    held.socket->received().storeConsumer(held.to);
    held.socket->publishFill();
  }
  held_.clear();
  flow_.reset();  // Addresses and peers may have come and gone since.
  arrays_ = arrays;
  inPlace_ = arrays.slab.data == settings_.memory;
  count_ = 0;
  slabUsed_ = scratchUsed_ = 0;
}

void XdpReceiver::drain(XdpSocket& socket) {
  const XdpRing& ring = socket.received();
  const uint32_t from = *ring.consumer, end = ring.endFrom(from);
  uint32_t at = from;
  while (at != end && roomy() && count_ < arrays_.capacity) {
    uint32_t parts = 0, bytes = 0;
    bool whole = false, sound = true;
    while (!whole && at + parts != end && parts < kMostParts) {
      const xdp_desc& part = ring.descriptor(at + parts++);
      sound = sound && socket.isSound(part);
      bytes += part.len;
      whole = (part.options & kContinued) == 0;
    }
    // The rest of the frame is not there yet.
    if (!whole && parts < kMostParts) break;
    if (!whole || !sound) {
      stats_.badDescriptors += parts;
      at += parts;
      continue;
    }
    if (!inPlace_ && count_ > 0 && bytes > arrays_.slab.length - slabUsed_) break;
    const uint8_t* frame = nullptr;
    if (!gather(socket, at, parts, frame)) break;
    at += parts;
    stats_.rxFrames++;
    take(frame, bytes, false);
  }
  if (at != from) held_.push_back({&socket, from, at});
}

/// Finds a frame in one piece, or makes it that. False while there is no room for that.
bool XdpReceiver::gather(XdpSocket& socket, uint32_t from, uint32_t count, const uint8_t*& frame) {
  const XdpRing& ring = socket.received();
  frame = socket.at(ring.descriptor(from));
  const uint8_t* next = frame + ring.descriptor(from).len;
  uint32_t bytes = ring.descriptor(from).len;
  bool inOnePiece = true;
  for (uint32_t i = 1; i < count; i++) {
    const xdp_desc& part = ring.descriptor(from + i);
    inOnePiece = inOnePiece && socket.at(part) == next;
    next += part.len;
    bytes += part.len;
  }
  if (inOnePiece) return true;
  if (bytes > settings_.scratchBytes - scratchUsed_) return false;
  uint8_t* to = settings_.scratch + scratchUsed_;
  frame = to;
  for (uint32_t i = 0; i < count; i++) {
    const xdp_desc& part = ring.descriptor(from + i);
    std::memcpy(to, socket.at(part), part.len);
    to += part.len;
  }
  scratchUsed_ += bytes;
  stats_.gathered++;
  return true;
}

void XdpReceiver::take(const uint8_t* frame, uint32_t bytes, bool own) {
  const uint8_t* ip = frame + ETH_HLEN;
  if (bytes < ETH_HLEN + 4) {
    stats_.malformed++;
    return;
  }
  uint32_t type = get16(frame + 12);
  if (type == ETH_P_8021Q) {
    type = get16(frame + 16);
    ip += 4;
  }
  auto left = static_cast<uint32_t>(frame + bytes - ip);
  const bool v6 = type == ETH_P_IPV6;
  const uint32_t ipBytes = v6 ? 40 : 20;
  if ((!v6 && type != ETH_P_IP) || left < ipBytes + kUdpBytes || ip[0] >> 4 != (v6 ? 6 : 4) || (!v6 && ip[0] != 0x45) ||
      ip[v6 ? 6 : 9] != IPPROTO_UDP || (!v6 && (get16(ip + 6) & 0x3fff) != 0)) {
    stats_.malformed++;
    return;
  }
  if (!v6 && !hasRightChecksum(ip, ipBytes)) {
    stats_.checksumErrors++;
    return;
  }
  const uint8_t* udp = ip + ipBytes;
  const uint32_t ipPayload = v6 ? get16(ip + 4) : get16(ip + 2) - ipBytes;
  const uint32_t udpLength = get16(udp + 4);
  if (ipPayload > left - ipBytes || udpLength != ipPayload || udpLength < kUdpBytes || get16(udp + 2) != settings_.port) {
    stats_.malformed++;
    return;
  }
  const uint32_t length = udpLength - kUdpBytes;
  if (length < kBthBytes + kIcrcBytes) {
    stats_.runts++;
    return;
  }
  Origin origin;
  Flow flow{{}, {}, own, 0, 0};
  if (v6) {
    std::memcpy(flow.source.data(), ip + 8, 16);
    std::memcpy(flow.destination.data(), ip + 24, 16);
    origin.trafficClass = (get16(ip) >> 4) & 0xff;
    origin.hopLimit = ip[7];
    origin.ipId = 0;
    origin.mayFragment = 0;
  } else {
    flow.source = mappedV4(ip + 12);
    flow.destination = mappedV4(ip + 16);
    origin.trafficClass = ip[1];
    origin.hopLimit = ip[8];
    origin.ipId = static_cast<uint16_t>(get16(ip + 4));
    origin.mayFragment = (ip[6] & 0x40) != 0 ? 0 : kMayFragment;
  }
  if (!flow_ || !flow_->isSame(flow)) {
    const auto local = locals_.find(flow.destination);
    if (local == locals_.end()) {
      stats_.malformed++;
      return;
    }
    if (!checkSource(flow.source, own)) {
      stats_.badSources++;
      return;
    }
    flow.local = local->second;
    flow.peer = peers_.find(flow.source, flow.local);
    flow_ = flow;
  }
  origin.source = flow_->source;
  origin.local = flow_->local;
  origin.peer = flow_->peer;
  origin.sourcePort = static_cast<uint16_t>(get16(udp));
  PseudoHeader pseudo = PseudoHeader::seen(ip);
  split(udp + kUdpBytes, length, pseudo, origin);
}

/// RFC 1122 §3.2.1.3, RFC 4291 §2.5.3 and §2.7: what no packet may come from. From the link's own addresses nothing comes by wire.
bool XdpReceiver::checkSource(const Gid& source, bool own) const {
  if (!own && !settings_.loopback && locals_.count(source) != 0) return false;
  if (isMulticast(source) || isWildcard(source)) return false;
  if (isMappedV4(source)) {
    const uint8_t first = source[12];
    return first < 0xe0 && first != 0 && (settings_.loopback || first != 127);
  }
  static constexpr Gid kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return settings_.loopback || source != kLoopback;
}

void XdpReceiver::split(const uint8_t* datagram, uint32_t bytes, PseudoHeader& pseudo, const Origin& origin) {
  if (bytes <= kMostPacket && isRight(datagram, bytes, pseudo, origin.ipId)) {
    deliver(datagram, bytes, origin, origin.ipId, Verdict::ok);
    return;
  }
  const uint32_t segment = findSegment(datagram, bytes, pseudo, origin.ipId);
  if (segment == 0) {
    deliver(datagram, bytes, origin, origin.ipId, Verdict::bad);
    return;
  }
  lastSegment_ = segment;
  stats_.superPackets++;
  uint16_t index = 0;
  for (uint32_t at = 0; at < bytes; at += segment, index++) {
    const uint32_t length = std::min(segment, bytes - at);
    if (length < kBthBytes + kIcrcBytes) {
      stats_.runts++;
      break;
    }
    // A super-packet has one header: the packets count on from its Identification, as if it had been cut.
    const auto ipId = static_cast<uint16_t>(pseudo.isV6() ? 0 : origin.ipId + index);
    deliver(datagram + at, length, origin, ipId, isRight(datagram + at, length, pseudo, ipId) ? Verdict::ok : Verdict::bad);
  }
}

bool XdpReceiver::isRight(const uint8_t* packet, uint32_t bytes, PseudoHeader& pseudo, uint16_t ipId) {
  const uint32_t state = pseudo.over(*crc_, packet, bytes, ipId);
  const uint32_t icrc = loadIcrc(packet + bytes - kIcrcBytes);
  if (~state == icrc) return true;
  if (!settings_.flushTwice || packet[0] != kFlushOpcode || bytes != kFlushBytes ||
      ~crc_->update(state, packet, bytes - kIcrcBytes) != icrc)
    return false;
  stats_.flushTwice++;
  return true;
}

uint32_t XdpReceiver::findSegment(const uint8_t* datagram, uint32_t bytes, PseudoHeader& pseudo, uint16_t ipId) {
  const auto isSegment = [&](uint32_t segment) {
    return mayBegin(datagram, bytes, segment) && isRight(datagram, segment, pseudo, ipId);
  };
  if (lastSegment_ != 0 && isSegment(lastSegment_)) return lastSegment_;
  // Most runs are made of packets with a BTH and a whole path MTU.
  for (uint32_t mtu = 4096; mtu >= 256; mtu /= 2)
    if (const uint32_t segment = kBthBytes + mtu + kIcrcBytes; isSegment(segment)) return segment;
  const uint32_t most = std::min(bytes - 1, kMostPacket);
  const uint32_t least = std::max((bytes + kSegments - 1) / kSegments, kBthBytes + kIcrcBytes);
  // First where the next packet of the same queue pair may begin: payload that looks like that knows the PSN.
  for (const bool follows : {true, false}) {
    uint32_t tries = kMostTries;
    // Packets are padded to words (IBTA vol 1 §9.2.5).
    for (uint32_t segment = (least + 3) & ~3u; segment <= most && tries > 0; segment += 4) {
      if (!mayBegin(datagram, bytes, segment) || isNext(datagram, datagram + segment) != follows) continue;
      if (isRight(datagram, segment, pseudo, ipId)) return segment;
      tries--;
    }
  }
  return 0;
}

bool XdpReceiver::mayBegin(const uint8_t* datagram, uint32_t bytes, uint32_t segment) const {
  if (segment >= bytes || bytes - segment < kBthBytes || (bytes + segment - 1) / segment > kSegments) return false;
  // The next BTH has version 0, the same partition, and a queue pair of the device; then it is worth a CRC.
  const uint8_t* next = datagram + segment;
  if ((next[1] & 0x0f) != 0 || next[2] != datagram[2] || next[3] != datagram[3]) return false;
  const uint32_t qpn = get24(next + kDestinationQpByte);
  return qpn == get24(datagram + kDestinationQpByte) || queuePairs_.count(qpn) != 0;
}

void XdpReceiver::deliver(const uint8_t* packet, uint32_t bytes, const Origin& origin, uint16_t ipId, Verdict verdict) {
  uint32_t offset;
  if (count_ == arrays_.capacity) {
    stats_.overruns++;
    return;
  }
  if (inPlace_) {
    offset = static_cast<uint32_t>(packet - settings_.memory);
  } else {
    if (bytes > arrays_.slab.length - slabUsed_) {
      stats_.overruns++;
      return;
    }
    std::memcpy(arrays_.slab.data + slabUsed_, packet, bytes);
    offset = static_cast<uint32_t>(slabUsed_);
    slabUsed_ += bytes;
  }
  writeRxSlot(arrays_, count_++,
              {offset, bytes - kIcrcBytes, origin.peer, origin.local, origin.trafficClass, origin.hopLimit, verdict,
               ipId | origin.mayFragment, origin.sourcePort},
              origin.source);
  stats_.rxPackets++;
  stats_.rxBytes += bytes;
  stats_.icrcBad += verdict == Verdict::bad;
}

}  // namespace roce
