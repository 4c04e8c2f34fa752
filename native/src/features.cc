#include "features.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "send_messages.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace roce {
namespace {

/// Whether the kernel takes a GSO message of so many one-byte segments, from a socket to itself.
bool takesSegments(int fd, const sockaddr_in& self, size_t segments) {
  char bytes[128] = {};
  iovec iov{bytes, segments};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_in*>(&self);
  message.msg_namelen = sizeof self;
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_UDP;
  header->cmsg_type = UDP_SEGMENT;
  header->cmsg_len = CMSG_LEN(sizeof(uint16_t));
  const uint16_t one = 1;
  std::memcpy(CMSG_DATA(header), &one, sizeof one);
  return sendmsg(fd, &message, MSG_DONTWAIT) == static_cast<ssize_t>(segments);
}

}  // namespace

Features probeFeatures() {
  Features features;
  features.sendmmsg = sendMessages(-1, nullptr, 0, 0) == 0 || errno != ENOSYS;

  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_UDP);
  if (fd < 0) return features;
  const int on = 1, none = 0;
  features.gso = setsockopt(fd, SOL_UDP, UDP_SEGMENT, &on, sizeof on) == 0 &&
                 setsockopt(fd, SOL_UDP, UDP_SEGMENT, &none, sizeof none) == 0;
  features.gro = setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
  if (features.gso) {
    features.gsoMaxSegments = 64;
    sockaddr_in self{};
    self.sin_family = AF_INET;
    self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof self;
    // Where the loopback device is down nothing can be tried, and 64 is right everywhere.
    if (bind(fd, reinterpret_cast<sockaddr*>(&self), length) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&self), &length) == 0 && takesSegments(fd, self, 128))
      features.gsoMaxSegments = 128;
  }
  close(fd);
  return features;
}

}  // namespace roce
