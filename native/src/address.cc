#include "address.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>

namespace roce {
namespace {

constexpr std::array<uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

void Endpoint::setPort(uint16_t port) {
  if (isV6())
    to.v6.sin6_port = htons(port);
  else
    to.v4.sin_port = htons(port);
}

Gid Endpoint::gid() const {
  Gid gid{};
  if (isV6()) {
    std::memcpy(gid.data(), &to.v6.sin6_addr, 16);
  } else {
    std::copy(kMapped.begin(), kMapped.end(), gid.begin());
    std::memcpy(gid.data() + 12, &to.v4.sin_addr, 4);
  }
  return gid;
}

std::string Endpoint::text() const {
  char host[NI_MAXHOST] = "";
  getnameinfo(&to.any, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

bool parseEndpoint(bool v6, const std::string& address, uint16_t port, Endpoint& out) {
  // getaddrinfo rather than inet_pton for the sake of fe80::1%eth0.
  addrinfo hints{};
  hints.ai_family = v6 ? AF_INET6 : AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (address.size() != std::strlen(address.c_str())) return false;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return false;
  out = Endpoint{};
  out.length = found->ai_addrlen;
  std::memcpy(&out.to, found->ai_addr, found->ai_addrlen);
  out.setPort(port);
  freeaddrinfo(found);
  return true;
}

Endpoint endpointOf(const Gid& gid, uint16_t port, uint32_t scope) {
  Endpoint endpoint;
  if (isMappedV4(gid)) {
    endpoint.length = sizeof endpoint.to.v4;
    endpoint.to.v4.sin_family = AF_INET;
    std::memcpy(&endpoint.to.v4.sin_addr, gid.data() + 12, 4);
  } else {
    endpoint.length = sizeof endpoint.to.v6;
    endpoint.to.v6.sin6_family = AF_INET6;
    std::memcpy(&endpoint.to.v6.sin6_addr, gid.data(), 16);
    const bool linkLocal = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
    const bool linkLocalGroup = gid[0] == 0xff && (gid[1] & 0x0f) == 2;
    if (linkLocal || linkLocalGroup) endpoint.to.v6.sin6_scope_id = scope;
  }
  endpoint.setPort(port);
  return endpoint;
}

bool isMappedV4(const Gid& gid) { return std::equal(kMapped.begin(), kMapped.end(), gid.begin()); }

bool isMulticast(const Gid& gid) { return isMappedV4(gid) ? (gid[12] & 0xf0) == 0xe0 : gid[0] == 0xff; }

bool isWildcard(const Gid& gid) {
  const auto from = isMappedV4(gid) ? gid.begin() + 12 : gid.begin();
  return std::all_of(from, gid.end(), [](uint8_t byte) { return byte == 0; });
}

}  // namespace roce
