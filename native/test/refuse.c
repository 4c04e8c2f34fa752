// A kernel that refuses: replaces the C library's syscall (LD_PRELOAD) for sendmsg, sendto and sendmmsg, and fails as REFUSE asks.
// Compiled and used by refusals.test.ts.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static int isRun(struct msghdr *message) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_SEGMENT) return 1;
  return 0;
}

static int fail(int errnum) {
  errno = errnum;
  return -1;
}

static long (*next)(long, ...);

static int sendAll(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
  return (int)next(SYS_sendmmsg, fd, messages, count, flags);
}

static int sendSome(int fd, struct mmsghdr *messages, unsigned int count, int flags) {
  static int calls;
  const char *refuse = getenv("REFUSE");
  if (!refuse || fd < 0) return sendAll(fd, messages, count, flags);
  const int odd = calls++ & 1;

  if (!strncmp(refuse, "run:", 4)) {  // runs fail with that number, what stands before them goes
    for (unsigned int i = 0; i < count; i++)
      if (isRun(&messages[i].msg_hdr)) return i ? sendAll(fd, messages, i, flags) : fail(atoi(refuse + 4));
  } else if (!strncmp(refuse, "odd:", 4)) {  // one message a call, and every second call fails with that number
    if (odd) return fail(atoi(refuse + 4));
    count = 1;
  }
  return sendAll(fd, messages, count, flags);
}

/// The addon sends one message by sendto(2) or sendmsg(2), more by sendmmsg(2), all by this function.
long syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
  va_end(list);
  if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  const int fd = (int)arguments[0];
  if (number == SYS_sendmmsg)
    return sendSome(fd, (struct mmsghdr *)arguments[1], (unsigned int)arguments[2], (int)arguments[3]);
  if (number == SYS_sendmsg) {
    struct mmsghdr one = {.msg_hdr = *(struct msghdr *)arguments[1]};
    const int sent = sendSome(fd, &one, 1, (int)arguments[2]);
    return sent < 0 ? -1 : (long)one.msg_len;
  }
  if (number == SYS_sendto) {
    struct iovec piece = {(void *)arguments[1], (size_t)arguments[2]};
    struct mmsghdr one = {.msg_hdr = {.msg_name = (void *)arguments[4],
                                      .msg_namelen = (socklen_t)arguments[5],
                                      .msg_iov = &piece,
                                      .msg_iovlen = 1}};
    const int sent = sendSome(fd, &one, 1, (int)arguments[3]);
    return sent < 0 ? -1 : (long)one.msg_len;
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
