#include "route_events.h"

#include <linux/if_addr.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "netlink.h"
#include "udp_socket.h"

namespace roce {
namespace {

/// An address that can't be used: duplicate address detection is under way, or has found one (RFC 4862 §5.4).
constexpr uint32_t kUnusable = IFA_F_TENTATIVE | IFA_F_DADFAILED;

bool isCalled(const rtattr* name, const std::string& wanted) {
  return name != nullptr && wanted == std::string(static_cast<const char*>(RTA_DATA(name)),
                                                  strnlen(static_cast<const char*>(RTA_DATA(name)), RTA_PAYLOAD(name)));
}

}  // namespace

RouteEvents::RouteEvents(std::string interface) : interface_(std::move(interface)) {
  fd_ = openNetlink(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, SOCK_NONBLOCK);
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
  takeMessages(
      fd_, [&](const nlmsghdr& message) { read(message, events); },
      [&] { events.push_back({RouteEvent::overrun, {}}); });
  return events;
}

void RouteEvents::read(const nlmsghdr& message, std::vector<RouteEvent>& events) {
  switch (message.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      if (message.nlmsg_len < NLMSG_LENGTH(sizeof(ifinfomsg))) break;
      const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
      if (link->ifi_family != AF_UNSPEC) break;  // a bridge reports its ports, too
      const int rest = static_cast<int>(IFLA_PAYLOAD(&message));
      // One that is made anew has another index.
      if (index_ == 0 && isCalled(findAttribute(IFLA_RTA(link), rest, IFLA_IFNAME), interface_)) index_ = link->ifi_index;
      if (link->ifi_index != index_) break;
      const bool gone = message.nlmsg_type == RTM_DELLINK;
      if (gone) index_ = 0;
      const bool up = !gone && (link->ifi_flags & IFF_UP) != 0 && (link->ifi_flags & IFF_RUNNING) != 0;
      events.push_back({up ? RouteEvent::up : gone ? RouteEvent::gone : RouteEvent::down, {}});
      break;
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      if (message.nlmsg_len < NLMSG_LENGTH(sizeof(ifaddrmsg))) break;
      const auto* address = static_cast<const ifaddrmsg*>(NLMSG_DATA(&message));
      if (static_cast<int>(address->ifa_index) != index_) break;
      const int rest = static_cast<int>(IFA_PAYLOAD(&message));
      const rtattr* first = IFA_RTA(address);
      const rtattr* wide = findAttribute(first, rest, IFA_FLAGS);
      uint32_t flags = address->ifa_flags;
      if (wide != nullptr && RTA_PAYLOAD(wide) >= sizeof flags) std::memcpy(&flags, RTA_DATA(wide), sizeof flags);
      const bool added = message.nlmsg_type == RTM_NEWADDR;
      if (added && (flags & kUnusable) != 0 && (flags & IFA_F_OPTIMISTIC) == 0) break;
      // On a point-to-point link IFA_ADDRESS is the other end's (rtnetlink(7)).
      const rtattr* local = findAttribute(first, rest, IFA_LOCAL);
      if (local == nullptr) local = findAttribute(first, rest, IFA_ADDRESS);
      RouteEvent event{added ? RouteEvent::added : RouteEvent::removed, {}};
      if (local != nullptr && gidOf(address->ifa_family, RTA_DATA(local), RTA_PAYLOAD(local), event.address))
        events.push_back(event);
      break;
    }
    default:
      break;
  }
}

}  // namespace roce
