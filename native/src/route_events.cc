#include "route_events.h"

#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "udp_socket.h"

namespace roce {
namespace {

/// The kernel sends at most 32 KiB at once (NLMSG_GOODSIZE, netlink(7)).
constexpr size_t kBufferBytes = 32'768;
/// An address that can't be used: duplicate address detection is under way, or has found one (RFC 4862 §5.4).
constexpr uint32_t kUnusable = IFA_F_TENTATIVE | IFA_F_DADFAILED;

/// The attribute of this type, nullptr if there is none.
const rtattr* find(const rtattr* first, int length, int type) {
  for (const rtattr* a = first; RTA_OK(a, length); a = RTA_NEXT(a, length))
    if (a->rta_type == type) return a;
  return nullptr;
}

bool isCalled(const rtattr* name, const std::string& wanted) {
  return name != nullptr && wanted == std::string(static_cast<const char*>(RTA_DATA(name)),
                                                  strnlen(static_cast<const char*>(RTA_DATA(name)), RTA_PAYLOAD(name)));
}

/// Reads the GID of an address attribute. False if it is not an address.
bool readAddress(const rtattr* attribute, int family, Gid& gid) {
  const size_t length = family == AF_INET ? 4 : 16;
  if (attribute == nullptr || RTA_PAYLOAD(attribute) < length) return false;
  if (family == AF_INET) gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::memcpy(gid.data() + gid.size() - length, RTA_DATA(attribute), length);
  return true;
}

}  // namespace

RouteEvents::RouteEvents(std::string interface) : interface_(std::move(interface)) {
  fd_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (fd_ < 0) throw SystemFailure{errno, "socket"};
  sockaddr_nl local{};
  local.nl_family = AF_NETLINK;
  local.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) {
    const int errnum = errno;
    close();
    throw SystemFailure{errnum, "bind"};
  }
  try {
    index_ = static_cast<int>(interfaceIndex(fd_, interface_));
  } catch (const SystemFailure&) {
    close();
    throw;
  }
}

void RouteEvents::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::vector<RouteEvent> RouteEvents::take() {
  std::vector<RouteEvent> events;
  alignas(nlmsghdr) uint8_t buffer[kBufferBytes];
  while (fd_ >= 0) {
    sockaddr_nl from{};
    socklen_t fromLength = sizeof from;
    const ssize_t length =
        recvfrom(fd_, buffer, sizeof buffer, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &fromLength);
    if (length < 0) {
      if (errno == EINTR) continue;
      if (errno != ENOBUFS) break;
      events.push_back({RouteEvent::overrun, {}});
    } else if (static_cast<size_t>(length) > sizeof buffer) {
      events.push_back({RouteEvent::overrun, {}});
    } else if (from.nl_pid == 0) {  // from the kernel
      read(buffer, static_cast<size_t>(length), events);
    }
  }
  return events;
}

void RouteEvents::read(const uint8_t* bytes, size_t length, std::vector<RouteEvent>& events) {
  auto* header = reinterpret_cast<const nlmsghdr*>(bytes);
  // Signed: behind the last message, less than nothing may be left (NLMSG_NEXT counts its padding).
  auto left = static_cast<int>(length);
  for (; left > 0 && NLMSG_OK(header, static_cast<unsigned>(left)); header = NLMSG_NEXT(header, left)) {
    switch (header->nlmsg_type) {
      case RTM_NEWLINK:
      case RTM_DELLINK: {
        if (header->nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) break;
        const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(header));
        if (link->ifi_family != AF_UNSPEC) break;  // a bridge reports its ports, too
        const int rest = static_cast<int>(IFLA_PAYLOAD(header));
        // One that is made anew has another index.
        if (index_ == 0 && isCalled(find(IFLA_RTA(link), rest, IFLA_IFNAME), interface_)) index_ = link->ifi_index;
        if (link->ifi_index != index_) break;
        const bool gone = header->nlmsg_type == RTM_DELLINK;
        if (gone) index_ = 0;
        const bool up = !gone && (link->ifi_flags & IFF_UP) != 0 && (link->ifi_flags & IFF_RUNNING) != 0;
        events.push_back({up ? RouteEvent::up : RouteEvent::down, {}});
        break;
      }
      case RTM_NEWADDR:
      case RTM_DELADDR: {
        if (header->nlmsg_len < NLMSG_LENGTH(sizeof(ifaddrmsg))) break;
        const auto* address = static_cast<const ifaddrmsg*>(NLMSG_DATA(header));
        if (static_cast<int>(address->ifa_index) != index_) break;
        const int rest = static_cast<int>(IFA_PAYLOAD(header));
        const rtattr* first = IFA_RTA(address);
        const rtattr* wide = find(first, rest, IFA_FLAGS);
        uint32_t flags = address->ifa_flags;
        if (wide != nullptr && RTA_PAYLOAD(wide) >= sizeof flags) std::memcpy(&flags, RTA_DATA(wide), sizeof flags);
        const bool added = header->nlmsg_type == RTM_NEWADDR;
        if (added && (flags & kUnusable) != 0 && (flags & IFA_F_OPTIMISTIC) == 0) break;
        // On a point-to-point link IFA_ADDRESS is the other end's (rtnetlink(7)).
        const rtattr* local = find(first, rest, IFA_LOCAL);
        if (local == nullptr) local = find(first, rest, IFA_ADDRESS);
        RouteEvent event{added ? RouteEvent::added : RouteEvent::removed, {}};
        if (readAddress(local, address->ifa_family, event.address)) events.push_back(event);
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace roce
