// Addresses: RoCE knows 16-byte GIDs (an IPv4 address is ::ffff:a.b.c.d), the kernel sockaddrs.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

namespace roce {

using Gid = std::array<uint8_t, 16>;

/// An IPv4 or IPv6 address with a port.
struct Endpoint {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } to{};
  socklen_t length = 0;

  bool isV6() const { return to.any.sa_family == AF_INET6; }
  /// Host byte order.
  uint16_t port() const { return ntohs(isV6() ? to.v6.sin6_port : to.v4.sin_port); }
  void setPort(uint16_t port);
  uint32_t scope() const { return isV6() ? to.v6.sin6_scope_id : 0; }
  Gid gid() const;
  /// The address without the port, as text; with %scope where it has one.
  std::string text() const;
};

/// Parses a numeric address (never a name to look up), IPv6 with an optional %scope. False if it is not one.
bool parseEndpoint(bool v6, const std::string& address, uint16_t port, Endpoint& out);
/// The destination of packets to a GID. `scope` counts for link-local IPv6 addresses only.
Endpoint endpointOf(const Gid& gid, uint16_t port, uint32_t scope);

/// ::ffff:a.b.c.d
bool isMappedV4(const Gid& gid);
bool isMulticast(const Gid& gid);
/// 0.0.0.0 or ::
bool isWildcard(const Gid& gid);

}  // namespace roce
