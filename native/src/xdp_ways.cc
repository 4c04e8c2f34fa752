#include "xdp_ways.h"

#include <linux/if_ether.h>
#include <netinet/in.h>

#include <cstring>

#include "clock.h"
#include "network_order.h"

namespace roce {

XdpWays::XdpWays(int interfaceIndex, bool ethernet, PeerTable& peers) : ethernet_(ethernet), peers_(peers) {
  neighbours_.emplace(static_cast<uint32_t>(interfaceIndex));
}

void XdpWays::add(uint32_t index, const Gid& source, bool own) {
  if (index >= ways_.size()) {
    ways_.resize(index + 1);
    sources_.resize(index + 1);
  }
  XdpWay& way = ways_[index];
  way = XdpWay{};
  way.checkedMs = coarseMs() - kCheckMs;
  sources_[index] = source;
  const Peer& peer = *peers_.at(index);
  buildHeader(way, source, peer);
  if (own) way.kind = XdpWay::loop;
  else resolve(way, source, peer);
}

void XdpWays::resolve(XdpWay& way, const Gid& source, const Peer& peer) {
  // On lo the kernel takes packets from addresses of its own only where it has routed them itself (martians, RFC 1812 §5.3.7).
  if (!ethernet_) return;
  const Hop hop = neighbours_->hop(peer.gid, source);
  way.kind = hop.here ? XdpWay::wire : XdpWay::kernel;
  way.hop = hop.gid;
  if (!hop.here) return;
  Mac mac{};
  if (isMulticast(hop.gid)) {
    setTarget(way, true, Neighbours::ofGroup(hop.gid));
    return;
  }
  const bool known = neighbours_->find(hop.gid, mac);
  setTarget(way, known, mac);
}

void XdpWays::buildHeader(XdpWay& way, const Gid& source, const Peer& peer) const {
  uint8_t* at = way.header.data();
  std::memcpy(at + 6, mac_.data(), mac_.size());
  const bool v6 = !isMappedV4(peer.gid);
  put16(at + 12, v6 ? ETH_P_IPV6 : ETH_P_IP);
  uint8_t* ip = at + ETH_HLEN;
  uint8_t* udp = ip + (v6 ? 40 : 20);
  if (v6) {
    ip[0] = 0x60;
    ip[6] = IPPROTO_UDP;
    ip[7] = peer.hopLimit;
    std::memcpy(ip + 8, source.data(), 16);
    std::memcpy(ip + 24, peer.gid.data(), 16);
  } else {
    ip[0] = 0x45;
    ip[6] = 0x40;  // don't fragment
    ip[8] = peer.hopLimit;
    ip[9] = IPPROTO_UDP;
    std::memcpy(ip + 12, source.data() + 12, 4);
    std::memcpy(ip + 16, peer.gid.data() + 12, 4);
    for (int i = 0; i < 20; i += 2) way.sum += uint32_t{ip[i]} << 8 | ip[i + 1];
  }
  // UDP checksum 0, as rxe and RoCE cards send it (IBTA vol 1 annex A17.3.1).
  put16(udp + 2, peer.to.port());
  way.headerBytes = static_cast<uint8_t>(udp + 8 - at);
}

void XdpWays::setTarget(XdpWay& way, bool known, const Mac& mac) {
  way.known = known;
  if (!known) return;
  way.mac = mac;
  std::memcpy(way.header.data(), mac.data(), mac.size());
}

bool XdpWays::refresh() {
  bool all = false, link = false;
  for (const NeighbourChange& change : neighbours_->take()) {
    all = all || change.all;
    link = link || change.link;
    if (change.all || change.link) continue;
    for (uint32_t i = 0; i < ways_.size(); i++) {
      XdpWay& way = ways_[i];
      if (peers_.at(i) != nullptr && way.kind == XdpWay::wire && way.hop == change.gid && !isMulticast(way.hop))
        setTarget(way, change.known, change.mac);
    }
  }
  if (all) {
    for (uint32_t i = 0; i < ways_.size(); i++) {
      const Peer* peer = peers_.at(i);
      if (peer != nullptr && ways_[i].kind != XdpWay::loop) resolve(ways_[i], sources_[i], *peer);
    }
  }
  return link;
}

void XdpWays::checked(const Gid& hop, uint32_t nowMs) {
  for (XdpWay& way : ways_)
    if (way.hop == hop) way.checkedMs = nowMs;
}

void XdpWays::setMac(const Mac& mac) {
  mac_ = mac;
  for (XdpWay& way : ways_) std::memcpy(way.header.data() + 6, mac.data(), mac.size());
}

}  // namespace roce
