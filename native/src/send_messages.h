// sendmmsg, sendmsg, sendto, recvmmsg and recvmsg as one call of the kernel, with every C library. Not by the functions of glibc, which are points of
// cancellation: that costs two atomic operations on the thread.
#pragma once
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace roce {

// The callers' headers are the kernel's also with musl, as all their bytes that are not set are zero.

/// As sendmmsg(2); one message is sent by sendmsg(2), or by sendto(2), which fetches no header, where it is one piece without control
/// messages. sendmmsg of musl is a loop of sendmsg: a system call for each message.
inline int sendMessages(int fd, mmsghdr* messages, unsigned int count, int flags) {
  if (count != 1) return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, count, flags));
  const msghdr& message = messages->msg_hdr;
  const iovec& piece = message.msg_iov[0];
  const long length =
      message.msg_controllen == 0 && message.msg_iovlen == 1
          ? syscall(SYS_sendto, fd, piece.iov_base, piece.iov_len, flags, message.msg_name, message.msg_namelen)
          : syscall(SYS_sendmsg, fd, &message, flags);
  if (length < 0) return -1;
  messages->msg_len = static_cast<unsigned int>(length);
  return 1;
}

/// As recvmmsg(2), without a timeout. One message is received by recvmsg(2): recvmmsg costs a quarter more.
inline int receiveMessages(int fd, mmsghdr* messages, unsigned int count, int flags) {
  if (count != 1) return static_cast<int>(syscall(SYS_recvmmsg, fd, messages, count, flags, nullptr));
  const long length = syscall(SYS_recvmsg, fd, &messages->msg_hdr, flags);
  if (length < 0) return -1;
  messages->msg_len = static_cast<unsigned int>(length);
  return 1;
}

}  // namespace roce
