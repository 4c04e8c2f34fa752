// A side of the C programs: a socket, packets with an ICRC made and checked, and memory that the payload comes from and goes to.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../native/src/crc.h"
#include "../../native/src/icrc.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace c_limit {

using roce::Gid;

constexpr uint32_t kMemory = 16 << 20;
constexpr uint32_t kWindow = 512;
constexpr uint32_t kAckEvery = 64;
constexpr uint32_t kMessages = 8;  // of one sendmmsg with GSO; without, kSingles
constexpr uint32_t kSingles = 64;
constexpr uint32_t kReceives = 32;

/// The network of both hosts, and the namespaces that they are in, if they are in any.
inline uint32_t network = 0x7f000000;
inline const char* namespaces[2] = {};

inline const roce::Crc& crc = *roce::crcBest();

[[noreturn]] inline void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

inline double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

inline double processorSeconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

inline sockaddr_in address(int host, int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(network | static_cast<uint32_t>(host));
  return a;
}

inline Gid gid(int host) {
  Gid g{};
  g[10] = g[11] = 0xff;
  for (int i = 0; i < 3; i++) g[12 + i] = static_cast<uint8_t>(network >> (24 - 8 * i));
  g[15] = static_cast<uint8_t>(host);
  return g;
}

/// Each side on a processor of its own, as bench/pinning.mjs does for the others.
inline void pin(unsigned side) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(side, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// Has sockets from now on in the namespace of a host.
inline void enter(int host) {
  const char* name = namespaces[host - 1];
  if (name == nullptr) return;
  const std::string path = std::string("/var/run/netns/") + name;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail(path.c_str());
  close(fd);
}

struct Side {
  int fd;
  sockaddr_in peer;
  roce::PseudoHeader out, in;
  std::vector<uint8_t> memory = std::vector<uint8_t>(kMemory, 0x5a);
  uint32_t at = 0;

  Side(int host, int other, int port, bool merge)
      : peer(address(other, port)), out(gid(host), gid(other)), in(gid(other), gid(host)) {
    enter(host);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail("socket");
    const sockaddr_in local = address(host, port);
    const int probe = IP_PMTUDISC_PROBE, one = 1, buffer = 32 << 20;
    if (setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe) != 0) fail("IP_MTU_DISCOVER");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (merge && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one) != 0) fail("UDP_GRO");
    if (!merge && setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &one, sizeof one) != 0) fail("SO_NO_CHECK");
    if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) != 0) fail("bind");
    out.setPorts(static_cast<uint16_t>(port), static_cast<uint16_t>(port));
    in.setPorts(static_cast<uint16_t>(port), static_cast<uint16_t>(port));
  }

  uint8_t* next(uint32_t length) {
    if (at + length > kMemory) at = 0;
    uint8_t* p = memory.data() + at;
    at += length;
    return p;
  }

  /// One packet at `p`: BTH, payload out of memory, ICRC. Returns its bytes.
  uint32_t put(uint8_t* p, uint32_t psn, uint32_t length, uint32_t id) {
    uint8_t header[12] = {0x0a, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, static_cast<uint8_t>(psn >> 16),
                          static_cast<uint8_t>(psn >> 8), static_cast<uint8_t>(psn)};
    const uint32_t bytes = 12 + length + 4;
    if (bytes <= roce::PseudoHeader::kShort) {
      std::memcpy(p, header, 12);
      std::memcpy(p + 12, next(length), length);
      roce::storeIcrc(p + 12 + length, ~out.over(crc, p, bytes, static_cast<uint16_t>(id)));
      return bytes;
    }
    uint32_t state = out.start(crc, bytes, static_cast<uint16_t>(id), header, 12);
    std::memcpy(p, header, 12);
    state = crc.updateCopy(state, p + 12, next(length), length);
    roce::storeIcrc(p + 12 + length, ~state);
    return bytes;
  }

  /// Checks the ICRC and moves the payload to memory; returns the PSN.
  uint32_t take(const uint8_t* p, uint32_t bytes) {
    if (bytes < 16) fail("a runt");
    const uint32_t length = bytes - 16;
    uint8_t* to = next(length);
    uint32_t state;
    if (bytes <= roce::PseudoHeader::kShort) {
      state = ~in.over(crc, p, bytes, 0);
      std::memcpy(to, p + 12, length);
    } else {
      state = in.start(crc, bytes, 0, p, 12);
      state = ~crc.updateCopy(state, to, p + 12, length);
    }
    const uint32_t difference = state ^ roce::loadIcrc(p + 12 + length);
    if (difference != 0 && roce::solveIpId(difference, bytes) < 0) {
      std::fprintf(stderr, "a bad ICRC\n");
      std::exit(1);
    }
    return uint32_t{p[9]} << 16 | uint32_t{p[10]} << 8 | p[11];
  }

  void wait(short events) {
    pollfd p{fd, events, 0};
    if (poll(&p, 1, 5000) == 0) {
      std::fprintf(stderr, "nothing came for 5 s\n");
      std::exit(1);
    }
  }
};

inline void acknowledge(Side& side, uint32_t psn) {
  uint8_t p[16];
  const uint32_t bytes = side.put(p, psn & 0xffffff, 0, 0);
  while (sendto(side.fd, p, bytes, 0, reinterpret_cast<sockaddr*>(&side.peer), sizeof side.peer) < 0)
    if (errno != EAGAIN) fail("sendto");
}

}  // namespace c_limit
