#include "netlink.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "udp_socket.h"

namespace roce {
namespace {

/// The kernel sends at most 32 KiB at once (NLMSG_GOODSIZE, netlink(7)).
constexpr size_t kBufferBytes = 32'768;

}  // namespace

int openNetlink(uint32_t groups, int flags) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_ROUTE);
  if (fd < 0) throw SystemFailure{errno, "socket"};
  sockaddr_nl local{};
  local.nl_family = AF_NETLINK;
  local.nl_groups = groups;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0) return fd;
  const int errnum = errno;
  close(fd);
  throw SystemFailure{errnum, "bind"};
}

void takeMessages(int fd, const std::function<void(const nlmsghdr&)>& message, const std::function<void()>& lost) {
  alignas(nlmsghdr) uint8_t buffer[kBufferBytes];
  while (fd >= 0) {
    sockaddr_nl from{};
    socklen_t fromLength = sizeof from;
    const ssize_t length =
        recvfrom(fd, buffer, sizeof buffer, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &fromLength);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno != ENOBUFS) break;
    if (length < 0 || static_cast<size_t>(length) > sizeof buffer) {
      lost();
      continue;
    }
    if (from.nl_pid != 0) continue;  // not from the kernel
    const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
    // Signed: behind the last message, less than nothing may be left (NLMSG_NEXT counts its padding).
    auto left = static_cast<int>(length);
    for (; left > 0 && NLMSG_OK(header, static_cast<unsigned>(left)); header = NLMSG_NEXT(header, left)) message(*header);
  }
}

const rtattr* findAttribute(const rtattr* first, int length, int type) {
  for (const rtattr* a = first; RTA_OK(a, length); a = RTA_NEXT(a, length))
    if (a->rta_type == type) return a;
  return nullptr;
}

bool gidOf(int family, const void* bytes, size_t length, Gid& gid) {
  if (family != AF_INET && family != AF_INET6) return false;
  const size_t wanted = family == AF_INET ? 4 : 16;
  if (length < wanted) return false;
  gid = {};
  if (family == AF_INET) gid[10] = gid[11] = 0xff;
  std::memcpy(gid.data() + gid.size() - wanted, bytes, wanted);
  return true;
}

}  // namespace roce
