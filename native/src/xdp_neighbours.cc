#include "xdp_neighbours.h"

#include <linux/neighbour.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "netlink.h"

namespace roce {
namespace {

/// States in which the MAC address counts; it may be old, and then the kernel is asking again.
constexpr uint16_t kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;

const uint8_t* bytesOf(const Gid& gid) { return isMappedV4(gid) ? gid.data() + 12 : gid.data(); }
uint32_t lengthOf(const Gid& gid) { return isMappedV4(gid) ? 4 : 16; }
uint8_t familyOf(const Gid& gid) { return isMappedV4(gid) ? AF_INET : AF_INET6; }
bool isLinkLocal(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

/// A request with a header of this type, and room for attributes.
template <class Header>
struct Request {
  nlmsghdr message{};
  Header header{};
  alignas(4) uint8_t attributes[128] = {};

  Request(uint16_t type, uint16_t flags) {
    message.nlmsg_type = type;
    message.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    message.nlmsg_len = NLMSG_LENGTH(sizeof(Header));
  }
  void add(uint16_t type, const void* bytes, size_t length) {
    auto* attribute = reinterpret_cast<rtattr*>(reinterpret_cast<uint8_t*>(&message) + NLMSG_ALIGN(message.nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = static_cast<uint16_t>(RTA_LENGTH(length));
    std::memcpy(RTA_DATA(attribute), bytes, length);
    message.nlmsg_len = NLMSG_ALIGN(message.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
  }
};

/// Reads a neighbour message. False unless it is one of this interface.
bool readNeighbour(const nlmsghdr& message, uint32_t interfaceIndex, NeighbourChange& change) {
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof(ndmsg))) return false;
  const auto* header = static_cast<const ndmsg*>(NLMSG_DATA(&message));
  if (static_cast<uint32_t>(header->ndm_ifindex) != interfaceIndex) return false;
  const auto length = static_cast<int>(message.nlmsg_len - NLMSG_LENGTH(sizeof(ndmsg)));
  const auto* first =
      reinterpret_cast<const rtattr*>(reinterpret_cast<const uint8_t*>(header) + NLMSG_ALIGN(sizeof(ndmsg)));
  const rtattr* address = findAttribute(first, length, NDA_DST);
  const rtattr* mac = findAttribute(first, length, NDA_LLADDR);
  const bool hasMac = mac != nullptr && RTA_PAYLOAD(mac) == change.mac.size();
  if (hasMac) std::memcpy(change.mac.data(), RTA_DATA(mac), change.mac.size());
  change.known = hasMac && message.nlmsg_type == RTM_NEWNEIGH && (header->ndm_state & kKnown) != 0;
  return address != nullptr && gidOf(header->ndm_family, RTA_DATA(address), RTA_PAYLOAD(address), change.gid);
}

}  // namespace

Neighbours::Neighbours(uint32_t interfaceIndex) : interface_(interfaceIndex) {
  try {
    events_ = openNetlink(RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE, SOCK_NONBLOCK);
    requests_ = openNetlink(0, 0);
  } catch (...) {
    close();
    throw;
  }
}

void Neighbours::close() {
  for (int* fd : {&requests_, &events_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

const nlmsghdr* Neighbours::ask(const nlmsghdr& request) {
  auto& message = const_cast<nlmsghdr&>(request);
  message.nlmsg_seq = ++sequence_;
  if (requests_ < 0 || ::send(requests_, &message, message.nlmsg_len, 0) < 0) return nullptr;
  // The kernel has answered by the time that `send` returns.
  for (;;) {
    const ssize_t length = recv(requests_, answer_.data(), answer_.size(), MSG_DONTWAIT);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) return nullptr;
    const auto* answer = reinterpret_cast<const nlmsghdr*>(answer_.data());
    if (!NLMSG_OK(answer, static_cast<uint32_t>(length)) || answer->nlmsg_seq != sequence_) continue;
    return answer->nlmsg_type == NLMSG_ERROR ? nullptr : answer;
  }
}

Hop Neighbours::hop(const Gid& destination, const Gid& source) {
  if (isMulticast(destination)) return {true, destination};
  Request<rtmsg> request(RTM_GETROUTE, 0);
  request.header.rtm_family = familyOf(destination);
  request.header.rtm_dst_len = static_cast<uint8_t>(8 * lengthOf(destination));
  request.header.rtm_src_len = request.header.rtm_dst_len;
  request.add(RTA_DST, bytesOf(destination), lengthOf(destination));
  request.add(RTA_SRC, bytesOf(source), lengthOf(source));
  if (isLinkLocal(destination)) request.add(RTA_OIF, &interface_, sizeof interface_);
  const nlmsghdr* answer = ask(request.message);
  if (answer == nullptr || answer->nlmsg_type != RTM_NEWROUTE) return {};

  const auto* route = static_cast<const rtmsg*>(NLMSG_DATA(answer));
  if (route->rtm_type != RTN_UNICAST) return {};
  Hop hop{false, destination};
  auto left = static_cast<int>(RTM_PAYLOAD(answer));
  for (const rtattr* a = RTM_RTA(route); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
    const auto* bytes = static_cast<const uint8_t*>(RTA_DATA(a));
    if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) == sizeof interface_) {
      hop.here = std::memcmp(bytes, &interface_, sizeof interface_) == 0;
    } else if (a->rta_type == RTA_GATEWAY) {
      gidOf(route->rtm_family, bytes, RTA_PAYLOAD(a), hop.gid);
    } else if (a->rta_type == RTA_VIA && RTA_PAYLOAD(a) > sizeof(rtvia)) {
      // An IPv4 destination by an IPv6 gateway (RFC 5549).
      uint16_t family;
      std::memcpy(&family, bytes, sizeof family);
      gidOf(static_cast<uint8_t>(family), bytes + sizeof family, RTA_PAYLOAD(a) - sizeof family, hop.gid);
    }
  }
  return hop;
}

bool Neighbours::find(const Gid& neighbour, Mac& mac) {
  Request<ndmsg> request(RTM_GETNEIGH, 0);
  request.header.ndm_family = familyOf(neighbour);
  request.header.ndm_ifindex = static_cast<int>(interface_);
  request.add(NDA_DST, bytesOf(neighbour), lengthOf(neighbour));
  const nlmsghdr* answer = ask(request.message);
  NeighbourChange found;
  if (answer == nullptr || !readNeighbour(*answer, interface_, found) || !found.known) return false;
  mac = found.mac;
  return true;
}

std::vector<NeighbourChange> Neighbours::take() {
  std::vector<NeighbourChange> changes;
  const auto read = [&](const nlmsghdr& message) {
    NeighbourChange change;
    switch (message.nlmsg_type) {
      case RTM_NEWNEIGH:
      case RTM_DELNEIGH:
        if (readNeighbour(message, interface_, change)) changes.push_back(change);
        break;
      case RTM_NEWLINK:
        change.link = true;
        changes.push_back(change);
        break;
      case RTM_NEWROUTE:
      case RTM_DELROUTE:
        change.all = true;
        changes.push_back(change);
        break;
      default:
        break;
    }
  };
  takeMessages(events_, read, [&] {
    NeighbourChange everything;
    everything.all = everything.link = true;
    changes.push_back(everything);
  });
  return changes;
}

Mac Neighbours::ofGroup(const Gid& group) {
  if (isMappedV4(group))
    return {0x01, 0x00, 0x5e, static_cast<uint8_t>(group[13] & 0x7f), group[14], group[15]};
  return {0x33, 0x33, group[12], group[13], group[14], group[15]};
}

}  // namespace roce
