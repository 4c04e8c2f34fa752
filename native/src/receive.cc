#include "receive.h"

#include <netinet/udp.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "clock.h"
#include "send_messages.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace roce {
namespace {

int64_t nanoseconds(const timespec& time) { return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

int64_t nanosecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return nanoseconds(now);
}

int intOf(const cmsghdr* control) {
  int value = 0;
  std::memcpy(&value, CMSG_DATA(control), sizeof value);
  return value;
}

}  // namespace

Receiver::Receiver(const Crc* const& crc, const Settings& settings, Stats& stats, PeerTable& peers,
                   std::vector<std::unique_ptr<Local>>& locals)
    : crc_(crc), settings_(settings), stats_(stats), peers_(peers), locals_(locals) {}

void Receiver::begin(const RxArrays& arrays) {
  arrays_ = arrays;
  count_ = 0;
  full_ = false;
  slabUsed_ = 0;
  nowMs_ = coarseMs();
  if (peers_.changes() != peerChanges_) window_ = nullptr;
  peerChanges_ = peers_.changes();
}

bool Receiver::drain(uint32_t localIndex, uint32_t share, bool one) {
  Local& local = *locals_[localIndex];
  const UdpSocket& socket = *local.socket;
  if (socket.fd() < 0) return false;

  // A place in the slab for each datagram, and slots for as many packets as it may turn out to hold: what
  // has no slot would be lost. A batch that is smaller than one datagram takes one all the same.
  const uint32_t stride = strideOf(socket), packets = socket.gro() ? kSegments : 1;
  const size_t places = (arrays_.slab.length - slabUsed_) / stride;
  const uint32_t whole = (arrays_.capacity - count_) / packets;
  const uint32_t slots = whole == 0 && count_ == 0 && arrays_.capacity > 0 ? 1 : whole;
  const auto room = static_cast<uint32_t>(std::min<size_t>({places, slots, kDatagrams}));
  const uint32_t datagrams = one ? std::min(1u, room) : (room + share - 1) / share;
  full_ = datagrams == 0;
  if (full_) return false;

  prepare(arrays_.slab.data + slabUsed_, datagrams, stride);
  int received;
  do
    received = receiveMessages(socket.fd(), headers_.data(), datagrams, MSG_DONTWAIT);
  while (received < 0 && errno == EINTR);
  filled_ = received > 0 ? static_cast<uint32_t>(received) : 0;
  if (stamping_) {
    monotonicNs_ = nanosecondsOf(CLOCK_MONOTONIC);
    realNs_ = nanosecondsOf(CLOCK_REALTIME);
  }
  arrivedAfterMs_ = local.emptySeen ? local.emptyMs : nowMs_;
  if (received < static_cast<int>(datagrams)) {
    local.emptyMs = nowMs_;
    local.emptySeen = true;
  }
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    stats_.receiveErrors++;
    return false;
  }

  for (int i = 0; i < received; i++) {
    const msghdr& message = headers_[i].msg_hdr;
    stats_.rxDatagrams++;
    if (message.msg_flags & MSG_TRUNC) {
      stats_.truncated++;
      continue;
    }
    Datagram datagram{static_cast<uint8_t*>(iovecs_[i].iov_base), headers_[i].msg_len, headers_[i].msg_len};
    readControl(message, datagram);
    resolve(sources_[i], localIndex);
    split(datagram, local, localIndex, sources_[i].port());
  }
  slabUsed_ += size_t{stride} * static_cast<uint32_t>(received);
  return static_cast<uint32_t>(received) == datagrams;
}

void Receiver::prepare(uint8_t* places, uint32_t datagrams, uint32_t stride) {
  // A polling caller passes the same slab each time: then only the fields that the kernel wrote are reset.
  const bool same = places == places_ && stride == stride_ && datagrams <= prepared_;
  const uint32_t number = same ? filled_ : datagrams;
  for (uint32_t i = 0; i < number; i++) {
    iovecs_[i] = {places + size_t{i} * stride, stride};
    msghdr& message = headers_[i].msg_hdr;
    message.msg_iov = &iovecs_[i];
    message.msg_iovlen = 1;
    message.msg_name = &sources_[i].to;
    message.msg_namelen = sizeof sources_[i].to;
    message.msg_control = control_[i].bytes;
    message.msg_controllen = sizeof control_[i].bytes;
    message.msg_flags = 0;
  }
  if (same) return;
  places_ = places;
  stride_ = stride;
  prepared_ = datagrams;
}

void Receiver::readControl(const msghdr& message, Datagram& datagram) const {
  auto* header = const_cast<msghdr*>(&message);
  for (const cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, const_cast<cmsghdr*>(control))) {
    if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
      const int bytes = intOf(control);
      if (bytes > 0) datagram.segmentBytes = static_cast<uint32_t>(bytes);
    } else if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) {
      datagram.trafficClass = *CMSG_DATA(control);
    } else if ((control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TTL) ||
               (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_HOPLIMIT)) {
      datagram.hopLimit = static_cast<uint32_t>(intOf(control));
    } else if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS) {
      datagram.trafficClass = static_cast<uint32_t>(intOf(control));
    } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SO_TIMESTAMPNS) {
      timespec stamp;
      std::memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
      // A clock that was set meanwhile makes no packet come later than now.
      const int64_t age = std::max<int64_t>(0, realNs_ - nanoseconds(stamp));
      datagram.stamp = static_cast<uint64_t>(std::max<int64_t>(1, monotonicNs_ - age));
    }
  }
}

void Receiver::resolve(const Endpoint& source, uint32_t local) {
  const Gid gid = source.gid();
  if (window_ != nullptr && gid == sourceGid_ && local == sourceLocal_) return;
  sourceGid_ = gid;
  sourceLocal_ = local;
  const uint32_t first = locals_[local]->firstOfAddress;
  sourcePeer_ = peers_.find(gid, first);
  window_ = &peers_.window(gid, first);
}

void Receiver::split(const Datagram& datagram, Local& local, uint32_t localIndex, uint16_t sourcePort) {
  PseudoHeader& pseudo = local.pseudo;
  pseudo.setSource(sourceGid_);
  pseudo.setPorts(sourcePort, local.socket->local().port());
  stats_.groRuns += datagram.bytes > datagram.segmentBytes;

  Series series;
  Run run;
  uint32_t index = 0;
  // An empty datagram is a runt too, hence the test at the end.
  uint32_t at = 0;
  do {
    const uint8_t* packet = datagram.data + at;
    const uint32_t bytes = std::min(datagram.segmentBytes, datagram.bytes - at);
    if (bytes < kBthBytes + kIcrcBytes) {
      run.end();
      stats_.runts++;
    } else if (count_ == arrays_.capacity) {
      stats_.overruns++;
    } else {
      uint32_t ipId = 0;
      const Verdict verdict = check(packet, bytes, index, pseudo, series, ipId);
      writeRxSlot(arrays_, count_,
                  {static_cast<uint32_t>(packet - arrays_.slab.data), bytes - kIcrcBytes, sourcePeer_, localIndex,
                   datagram.trafficClass, datagram.hopLimit, verdict, ipId, sourcePort},
                  sourceGid_);
      uint32_t* slot = arrays_.slots.data + size_t{count_} * rx::kSlotWords;
      if (verdict == Verdict::ok)
        run.add(slot, packet, bytes);
      else
        run.end();
      if (stamping_) {
        slot[rx::stampLow] = static_cast<uint32_t>(datagram.stamp);
        slot[rx::stampHigh] = static_cast<uint32_t>(datagram.stamp >> 32);
      }
      count_++;
      stats_.rxPackets++;
      stats_.rxBytes += bytes;
      stats_.mayFragment += ipId >= kMayFragment;
      stats_.icrcBad += verdict == Verdict::bad;
      stats_.icrcOutOfWindow += verdict == Verdict::outOfWindow;
    }
    at += bytes;
    index++;
  } while (at < datagram.bytes);
  // The segments count from 0 where the datagrams do not count.
  if (index > 1 && series.known && (series.base & 0xffff) == 0) window_->expect(series.base);
}

Verdict Receiver::check(const uint8_t* packet, uint32_t bytes, uint32_t index, PseudoHeader& pseudo,
                        Series& series, uint32_t& ipId) {
  const uint32_t expected =
      series.known ? ipIdAfter(series.base, index * series.stride) : ipIdAfter(window_->predict(), index);
  pseudo.setMayFragment((expected & kMayFragment) != 0);
  const uint32_t state = pseudo.over(*crc_, packet, bytes, static_cast<uint16_t>(expected));
  const uint32_t difference = ~state ^ loadIcrc(packet + bytes - kIcrcBytes);
  const bool v6 = pseudo.isV6();
  ipId = v6 ? 0 : expected;
  if (difference != 0) {
    // Before a solution for one pass: one FLUSH of rxe in 32,768 would have one, for an Identification of nobody's.
    const bool twice = settings_.flushTwice && packet[0] == kFlushOpcode && bytes == kFlushBytes &&
                       explain(~crc_->update(state, packet, bytes - kIcrcBytes) ^ loadIcrc(packet + bytes - kIcrcBytes),
                               2 * bytes - kIcrcBytes, v6, ipId);
    stats_.flushTwice += twice;
    if (!twice && !explain(difference, bytes, v6, ipId)) {
      ipId = 0;
      return Verdict::bad;
    }
  }
  if (v6) return Verdict::ok;

  // Within a datagram the Identifications are those of a run cut on the way (base + i), of a run never
  // cut, whose packets carry the ICRC they would have had (the same), or all alike.
  if (series.known) {
    const bool counts = ipId == ipIdAfter(series.base, index), same = ipId == series.base;
    if (counts || same) {
      series.stride = counts ? 1 : 0;
      window_->admit(ipId, nowMs_, arrivedAfterMs_);
      return Verdict::ok;
    }
  }
  if (!window_->admit(ipId, nowMs_, arrivedAfterMs_) && settings_.idWindow) return Verdict::outOfWindow;
  if (!series.known) series = {true, ipIdAfter(ipId, 0u - index), 1};
  return Verdict::ok;
}

/// Whether an Identification explains the difference between an ICRC and the one computed with `ipId`, which becomes that.
bool Receiver::explain(uint32_t difference, uint32_t coveredBytes, bool v6, uint32_t& ipId) {
  if (difference == 0) return true;
  const int32_t solution = v6 ? -1 : solveIpId(difference, coveredBytes);
  if (solution < 0) return false;
  ipId ^= static_cast<uint32_t>(solution);
  stats_.solved++;
  return true;
}

}  // namespace roce
