// The kernel's connection manager for librdmacm, which opens /dev/infiniband/rdma_cm and writes commands to it
// (rdma/rdma_user_cm.h). The device carries them out (packages/device/src/ucma).
//
// A descriptor of the file is a Unix socket to the device, an event channel. A byte waits in it while its queue has events, so that
// poll and epoll work. Its last copy that is closed, of whatever process, ends the channel and its ids. Commands go over another
// connection, one for a process.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include "../roce.h"
#include "ucma.h"
#include <dlfcn.h>
#include <rdma/rdma_user_cm.h>

#define MAX_CHANNELS 4096
// Bytes of a command behind its header; the longest of rdma_user_cm.h has 304.
#define MAX_COMMAND 512
#define MAX_OPTION 256

// A channel is known by the inode of its socket: copies of the descriptor have the same one, and no other file has it. Found without a
// lock, as write() may be called in handlers of signals.
static struct channel {
  _Atomic(uint64_t) inode;  // 0: free.
  uint8_t token[ROCE_TOKEN_BYTES];
} channels[MAX_CHANNELS];
static atomic_uint used;

// Of the connection for commands, and of new channels.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int control = -1;
static pid_t control_pid;
static uint64_t control_inode;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void begin(void) { pthread_atfork(before_fork, after_fork, after_fork); }

static void report(const char *what) {
  static atomic_int said;
  roce_say_once(&said, "librdmacm of roce run: %s\n", what);
}

// fstat() has wrappers, which call this.
static uint64_t inode_of(int fd) {
  struct stat about;
  int saved = errno;
  long result = syscall(SYS_fstat, fd, &about);
  errno = saved;
  return result == 0 && S_ISSOCK(about.st_mode) ? about.st_ino : 0;
}

static struct channel *find(int fd) {
  unsigned count = atomic_load_explicit(&used, memory_order_acquire);
  uint64_t inode = count > 0 ? inode_of(fd) : 0;
  if (inode == 0) return NULL;
  for (unsigned i = 0; i < count; i++)
    if (atomic_load_explicit(&channels[i].inode, memory_order_acquire) == inode) return &channels[i];
  return NULL;
}

// Marks the channels that this process has a descriptor of. 0, or −1 where its descriptors can't be listed. Not every number up to
// RLIMIT_NOFILE is tried, which is a thousand million in some containers; nor is anything allocated.
static int mark(uint8_t is_open[MAX_CHANNELS]) {
  _Alignas(uint64_t) char entries[4096];
  const int folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  long n;
  if (folder < 0) return -1;
  while ((n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
    for (long at = 0; at < n;) {
      const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
      const struct channel *c = entry->d_name[0] != '.' ? find(atoi(entry->d_name)) : NULL;
      if (c != NULL) is_open[c - channels] = 1;
      at += entry->d_reclen;
    }
  close(folder);
  return (int)n;
}

// Forgets the channels that no descriptor of this process has any more.
static void prune(unsigned count) {
  static uint8_t is_open[MAX_CHANNELS];
  memset(is_open, 0, sizeof is_open);
  if (mark(is_open) != 0) return;
  for (unsigned i = 0; i < count; i++)
    if (!is_open[i]) atomic_store(&channels[i].inode, 0);
}

// 0, or −1 where there are too many.
static int add(int fd, const uint8_t token[ROCE_TOKEN_BYTES]) {
  unsigned i, count = atomic_load(&used);
  for (i = 0; i < count && atomic_load(&channels[i].inode) != 0;) i++;
  // All are taken: some may be closed. Looked for when their number has doubled, as it takes a while.
  if (i == count && count >= 64 && (count & (count - 1)) == 0) {
    prune(count);
    for (i = 0; i < count && atomic_load(&channels[i].inode) != 0;) i++;
  }
  if (i == MAX_CHANNELS) return -1;
  memcpy(channels[i].token, token, ROCE_TOKEN_BYTES);
  atomic_store_explicit(&channels[i].inode, inode_of(fd), memory_order_release);
  if (i == count) atomic_store_explicit(&used, count + 1, memory_order_release);
  return 0;
}

int roce_ucma_open(int flags) {
  NOT_CANCELLED;
  const struct roce_ucma_open_request request = {.network = roce_network(), .version = ROCE_PROTOCOL_VERSION};
  struct roce_ucma_open_reply reply;
  int fd = roce_dial(), error;
  if (fd < 0) {
    report("no device answers, so that there is no /dev/infiniband/rdma_cm");
    return -1;
  }
  error = roce_exchange(fd, ROCE_UCMA_OPEN, &request, sizeof request, &reply, sizeof reply);
  if (error == EXDEV) roce_report_network();
  if (error == 0) {
    pthread_mutex_lock(&lock);
    if (add(fd, reply.token) != 0) error = EMFILE;
    pthread_mutex_unlock(&lock);
  }
  if (error == 0 && (flags & O_CLOEXEC) == 0) fcntl(fd, F_SETFD, 0);
  if (error == 0 && (flags & O_NONBLOCK) != 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

// The number that the machine's own /dev/infiniband/rdma_cm has, where its driver is loaded: librdmacm compares.
static dev_t number(void) {
  char text[32] = {0};
  unsigned major = 10, minor = 0;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/class/misc/rdma_cm/dev", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return makedev(major, minor);
  if (read(fd, text, sizeof text - 1) > 0) sscanf(text, "%u:%u", &major, &minor);
  close(fd);
  return makedev(major, minor);
}

void roce_ucma_stat(int fd, mode_t *mode, dev_t *device) {
  int saved = errno;
  if (find(fd) != NULL) {
    *mode = S_IFCHR | 0666;
    *device = number();
  }
  errno = saved;
}

// Copies of the program's memory fail with EFAULT, as in the kernel, where a pointer is wrong. Where the call itself is refused (a filter of
// seccomp, with whatever error), a wrong pointer ends the program.
static int is_wrong(ssize_t n) { return n >= 0 || errno == EFAULT; }
static int take(void *to, uint64_t from, size_t length) {
  struct iovec own = {to, length}, theirs = {(void *)(uintptr_t)from, length};
  const ssize_t n = length > 0 ? process_vm_readv(getpid(), &own, 1, &theirs, 1, 0) : 0;
  if (n == (ssize_t)length) return 0;
  if (is_wrong(n)) return EFAULT;
  memcpy(to, theirs.iov_base, length);
  return 0;
}
static int give(uint64_t to, const void *from, size_t length) {
  struct iovec own = {(void *)from, length}, theirs = {(void *)(uintptr_t)to, length};
  const ssize_t n = length > 0 ? process_vm_writev(getpid(), &own, 1, &theirs, 1, 0) : 0;
  if (n == (ssize_t)length) return 0;
  if (is_wrong(n)) return EFAULT;
  memcpy(theirs.iov_base, from, length);
  return 0;
}

// Where a command has the pointer for its response; −1 where it has none.
static int response_at(uint32_t command) {
  switch (command) {
    case RDMA_USER_CM_CMD_CREATE_ID: return offsetof(struct rdma_ucm_create_id, response);
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
    case RDMA_USER_CM_CMD_GET_EVENT:
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
    case RDMA_USER_CM_CMD_MIGRATE_ID:
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_JOIN_MCAST: return 0;
    default: return -1;
  }
}

struct command {
  struct rdma_ucm_cmd_hdr head;
  uint8_t bytes[MAX_COMMAND];
  // Data behind its pointers: the value of an option, or the channel that an id leaves.
  uint8_t more[MAX_OPTION];
  uint32_t more_bytes;
  int from;  // The descriptor of that channel.
};

// Reads the bytes of queues that have become empty.
static void drain(int fd, uint32_t bytes) {
  char byte;
  while (bytes-- > 0 && fd >= 0 && recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EINTR) bytes++;
}

// Sends a command to the device; 0 or errno.
static int call(int fd, const struct channel *c, const struct command *k, struct roce_ucma_command_reply *reply) {
  NOT_CANCELLED;
  const uint32_t in = k->head.in < MAX_COMMAND ? k->head.in : MAX_COMMAND;
  struct roce_ucma_command_request request = {.command = k->head.cmd, .out = k->head.out, .in = in, .bytes_count = in + k->more_bytes};
  const size_t length = offsetof(struct roce_ucma_command_request, bytes) + request.bytes_count;
  int error;
  _Static_assert(sizeof request.bytes >= MAX_COMMAND + MAX_OPTION, "all of a command");
  memcpy(request.token, c->token, sizeof request.token);
  memcpy(request.bytes, k->bytes, in);
  memcpy(request.bytes + in, k->more, k->more_bytes);
  pthread_mutex_lock(&lock);
  // A daemon closes all descriptors that it finds, and opens others under the same numbers.
  if (control >= 0 && inode_of(control) != control_inode) control = -1;
  if (control >= 0 && control_pid != getpid()) {
    close(control);  // The parent's.
    control = -1;
  }
  if (control < 0) {
    control = roce_dial();
    control_pid = getpid();
    control_inode = inode_of(control);
  }
  memset(reply, 0, sizeof *reply);
  error = control < 0 ? EIO : roce_exchange(control, ROCE_UCMA_COMMAND, &request, length, reply, sizeof *reply);
  if (error == EIO && control >= 0) {
    close(control);
    control = -1;
  }
  if (reply->response_count > sizeof reply->response) reply->response_count = sizeof reply->response;
  if (error != 0 && error != EAGAIN && roce_debug())
    dprintf(STDERR_FILENO, "librdmacm of roce run: command %u: %s: %.*s\n", k->head.cmd, strerror(error), (int)reply->response_count,
            (const char *)reply->response);
  drain(fd, reply->own);
  drain(k->from, reply->other);
  pthread_mutex_unlock(&lock);
  if (error == EIO) report("the device has ended");
  return error;
}

// Waits for an event, unless the descriptor does not wait. 0 or errno.
static int wait_for_event(int fd) {
  char byte;
  ssize_t n = recv(fd, &byte, 1, MSG_PEEK);
  if (n > 0) return 0;
  return n == 0 ? EIO : errno;
}

// The device has ended: no event comes any more. The kernel's channel is silent then, but a socket without another end would be readable
// for ever, and a program that reads again after an error, as tgtd does, would never rest. Another socket takes the place of this copy of
// the descriptor: an unconnected one, which nothing is readable from. Other copies are channels still, by their inode.
static void silence(int fd, const struct channel *c) {
  char byte;
  int quiet;
  pthread_mutex_lock(&lock);
  // Another thread may have been here, or have closed it.
  if (find(fd) == c && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 && (quiet = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) >= 0) {
    int status = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD);
    if (status >= 0) fcntl(quiet, F_SETFL, status);
    if (add(quiet, c->token) == 0 && dup3(quiet, fd, own > 0 && (own & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0)
      atomic_store(&find(quiet)->inode, 0);  // The kernel gives its inode to another socket some day.
    close(quiet);
  }
  pthread_mutex_unlock(&lock);
}

static int get_event(int fd, const struct channel *c, const struct command *k, struct roce_ucma_command_reply *reply) {
  for (;;) {
    int error = wait_for_event(fd);
    if (error == EIO) {
      report("the device has ended");
      silence(fd, c);
    }
    if (error == 0) error = call(fd, c, k, reply);
    if (error != EAGAIN || (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0) return error;
    // Another thread has taken it, and has still to read the byte.
    sched_yield();
  }
}

static int command(int fd, const struct channel *c, uint64_t bytes, size_t length) {
  struct command k = {.from = -1};
  struct roce_ucma_command_reply reply;
  uint64_t to = 0;
  int error, at;
  if (length < sizeof k.head) return EINVAL;
  if ((error = take(&k.head, bytes, sizeof k.head)) != 0) return error;
  if (k.head.in + sizeof k.head > length) return EINVAL;
  error = take(k.bytes, bytes + sizeof k.head, k.head.in < MAX_COMMAND ? k.head.in : MAX_COMMAND);
  if (error != 0) return error;
  if (k.head.cmd == RDMA_USER_CM_CMD_SET_OPTION) {
    struct rdma_ucm_set_option option;
    memcpy(&option, k.bytes, sizeof option);
    if (option.optlen > MAX_OPTION) return EINVAL;
    if ((error = take(k.more, option.optval, option.optlen)) != 0) return error;
    k.more_bytes = option.optlen;
  }
  if (k.head.cmd == RDMA_USER_CM_CMD_MIGRATE_ID) {
    struct rdma_ucm_migrate_id migrate;
    struct channel *from;
    memcpy(&migrate, k.bytes, sizeof migrate);
    if (fcntl((int)migrate.fd, F_GETFD) < 0) return ENOENT;
    if ((from = find((int)migrate.fd)) == NULL) return EINVAL;
    memcpy(k.more, from->token, k.more_bytes = sizeof from->token);
    k.from = (int)migrate.fd;
  }
  error = (k.head.cmd == RDMA_USER_CM_CMD_GET_EVENT ? get_event : call)(fd, c, &k, &reply);
  if (error != 0) return error;
  at = response_at(k.head.cmd);
  if (at >= 0) memcpy(&to, k.bytes + at, sizeof to);
  return at >= 0 ? give(to, reply.response, k.head.out < reply.response_count ? k.head.out : reply.response_count) : 0;
}

ssize_t write(int fd, const void *bytes, size_t length) {
  static ssize_t (*next)(int, const void *, size_t);
  struct channel *c = find(fd);
  int error;
  if (c != NULL) {
    error = command(fd, c, (uintptr_t)bytes, length);
    if (error == 0) return (ssize_t)length;
    errno = error;
    return -1;
  }
  if (next == NULL) next = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  return next(fd, bytes, length);
}
