// sendmmsg, as one call of the kernel with every C library.
#pragma once
#include <sys/socket.h>
#if !defined(__GLIBC__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roce {

/// As sendmmsg(2). That of musl is a loop of sendmsg: a system call for each message. The caller's headers are the kernel's, as all
/// their bytes that are not set are zero.
inline int sendMessages(int fd, mmsghdr* messages, unsigned int count, int flags) {
#if defined(__GLIBC__)
  return sendmmsg(fd, messages, count, flags);
#else
  return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, count, flags));
#endif
}

}  // namespace roce
