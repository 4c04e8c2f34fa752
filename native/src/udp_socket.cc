#include "udp_socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

// Older C libraries lack some of these numbers (linux/udp.h, linux/in.h, asm-generic/socket.h).
#ifndef UDP_NO_CHECK6_TX
#define UDP_NO_CHECK6_TX 101
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

namespace roce {

uint32_t interfaceIndex(int fd, const std::string& name) {
  ifreq request{};
  if (name.size() >= sizeof request.ifr_name) throw SystemFailure{ENODEV, "ioctl"};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  if (ioctl(fd, SIOCGIFINDEX, &request) != 0) throw SystemFailure{errno, "ioctl"};
  return static_cast<uint32_t>(request.ifr_ifindex);
}

UdpSocket::UdpSocket(const SocketOptions& options) : local_(options.local), options_(options) {
  try {
    open();
  } catch (...) {
    close();
    throw;
  }
}

void UdpSocket::open() {
  const int family = local_.to.any.sa_family;
  const bool bound = options_.descriptor >= 0;
  fd_ = bound ? fcntl(options_.descriptor, F_DUPFD_CLOEXEC, 0)
              : socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
  if (fd_ < 0) throw SystemFailure{errno, bound ? "fcntl" : "socket"};
  if (bound && (get(SOL_SOCKET, SO_PROTOCOL) != IPPROTO_UDP || get(SOL_SOCKET, SO_DOMAIN) != uint32_t(family)))
    throw SystemFailure{EPROTOTYPE, "getsockopt"};
  configure();
  if (!bound && bind(fd_, &local_.to.any, local_.length) != 0) throw SystemFailure{errno, "bind"};
  socklen_t length = sizeof local_.to;
  if (getsockname(fd_, &local_.to.any, &length) != 0) throw SystemFailure{errno, "getsockname"};
  if (bound) earlierDrops_ = allDrops();
}

void UdpSocket::configure() {
  const bool v6 = local_.isV6();
  const int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
  // Linux refuses it on a socket that is bound; the process that bound that one has set it.
  if (v6 && options_.descriptor < 0) set(level, IPV6_V6ONLY, 1);
  if (options_.reusePort) set(SOL_SOCKET, SO_REUSEPORT, 1);
  if (!options_.device.empty() &&
      setsockopt(fd_, SOL_SOCKET, SO_BINDTODEVICE, options_.device.data(), options_.device.size()) != 0)
    throw SystemFailure{errno, "setsockopt"};

  // DF with Identification 0, which the ICRC covers, and no path MTU that a forged ICMP could lower.
  set(level, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, v6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE);
  set(level, v6 ? IPV6_UNICAST_HOPS : IP_TTL, kUsualHopLimit);
  set(level, v6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, kUsualHopLimit);
  if (!options_.checksum)
    set(v6 ? SOL_UDP : SOL_SOCKET, v6 ? UDP_NO_CHECK6_TX : SO_NO_CHECK, 1);

  // Every member of a group on this machine has a socket on the group's address, and each gets a copy.
  if (isMulticast(local_.gid())) set(SOL_SOCKET, SO_REUSEADDR, 1);
  // To a group, packets leave by the interface that has our address.
  else if (!isWildcard(local_.gid()))
    chooseMulticastInterface();

  if (options_.sendBuffer > 0) {
    const int bytes = static_cast<int>(options_.sendBuffer);
    if (!trySet(SOL_SOCKET, SO_SNDBUFFORCE, bytes)) trySet(SOL_SOCKET, SO_SNDBUF, bytes);
  }

  if (!options_.receive) {
    mute(true);
    return;
  }

  if (options_.receiveBuffer > 0) {
    const int bytes = static_cast<int>(options_.receiveBuffer);
    if (!trySet(SOL_SOCKET, SO_RCVBUFFORCE, bytes)) trySet(SOL_SOCKET, SO_RCVBUF, bytes);
  }
  set(level, v6 ? IPV6_RECVTCLASS : IP_RECVTOS, 1);
  set(level, v6 ? IPV6_RECVHOPLIMIT : IP_RECVTTL, 1);
  // Without it the kernel drops what rxe and ConnectX send over IPv6: UDP checksum 0.
  if (v6) set(SOL_UDP, UDP_NO_CHECK6_RX, 1);
  // Only what this socket joined, not what somebody else on this machine did.
  trySet(level, v6 ? IPV6_MULTICAST_ALL : IP_MULTICAST_ALL, 0);
  if (options_.gro) gro_ = trySet(SOL_UDP, UDP_GRO, 1);
}

void UdpSocket::chooseMulticastInterface() {
  const std::string& name = options_.multicastInterface;
  const uint32_t wanted = name.empty() ? 0 : interfaceIndex(fd_, name);
  if (local_.isV6()) {
    const uint32_t index = wanted != 0 ? wanted : local_.scope();
    if (index != 0) set(IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(index));
    return;
  }
  ip_mreqn request{};
  request.imr_address = local_.to.v4.sin_addr;
  request.imr_ifindex = static_cast<int>(wanted);
  if (setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request) != 0 && wanted != 0)
    throw SystemFailure{errno, "setsockopt"};
}

void UdpSocket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool UdpSocket::trySet(int level, int option, int value) {
  return setsockopt(fd_, level, option, &value, sizeof value) == 0;
}

void UdpSocket::set(int level, int option, int value, const char* syscall) {
  if (!trySet(level, option, value)) throw SystemFailure{errno, syscall};
}

uint32_t UdpSocket::get(int level, int option) const {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(fd_, level, option, &value, &length) == 0 ? static_cast<uint32_t>(value) : 0;
}

uint32_t UdpSocket::receiveBuffer() const { return get(SOL_SOCKET, SO_RCVBUF); }
uint32_t UdpSocket::sendBuffer() const { return get(SOL_SOCKET, SO_SNDBUF); }

void UdpSocket::steer(sock_filter* program, uint16_t length) {
  const sock_fprog steering{length, program};
  if (setsockopt(fd_, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steering, sizeof steering) != 0)
    throw SystemFailure{errno, "setsockopt"};
}

void UdpSocket::mute(bool on) {
  sock_filter dropAll[] = {{BPF_RET | BPF_K, 0, 0, 0}};
  const sock_fprog program{1, dropAll};
  const int none = 0;
  const int result = on ? setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)
                        : setsockopt(fd_, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
  // ENOENT: it has no filter.
  if (result != 0 && errno != ENOENT) throw SystemFailure{errno, "setsockopt"};
}

void UdpSocket::stamp() { set(SOL_SOCKET, SO_TIMESTAMPNS, 1); }

uint32_t UdpSocket::drops() const { return fd_ < 0 ? 0 : allDrops() - earlierDrops_; }

uint32_t UdpSocket::allDrops() const {
  uint32_t memory[SK_MEMINFO_VARS] = {};
  socklen_t length = sizeof memory;
  return getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, memory, &length) == 0 ? memory[SK_MEMINFO_DROPS] : 0;
}

void UdpSocket::setMembership(const Endpoint& group, uint32_t interfaceIndex, bool join) {
  int result;
  if (group.isV6()) {
    ipv6_mreq request{};
    request.ipv6mr_multiaddr = group.to.v6.sin6_addr;
    request.ipv6mr_interface = interfaceIndex != 0 ? interfaceIndex : group.scope();
    result = setsockopt(fd_, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &request, sizeof request);
  } else {
    ip_mreqn request{};
    request.imr_multiaddr = group.to.v4.sin_addr;
    request.imr_ifindex = static_cast<int>(interfaceIndex);
    result = setsockopt(fd_, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &request, sizeof request);
  }
  if (result != 0) throw SystemFailure{errno, "setsockopt"};
}

}  // namespace roce
