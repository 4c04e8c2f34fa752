// Messages to the device, and the connections that they go over. Part of both libraries.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "roce.h"

void *roce_room(size_t bytes) {
  void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return room == MAP_FAILED ? NULL : room;
}

void roce_free_room(void *room, size_t bytes) {
  if (room != NULL) munmap(room, bytes);
}

int roce_write_all(int fd, const void *bytes, size_t length) {
  const uint8_t *from = bytes;
  while (length > 0) {
    ssize_t n = send(fd, from, length, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    from += n;
    length -= (size_t)n;
  }
  return 0;
}

int roce_read_all(int fd, void *bytes, size_t length) {
  uint8_t *to = bytes;
  while (length > 0) {
    ssize_t n = recv(fd, to, length, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    to += n;
    length -= (size_t)n;
  }
  return 0;
}

int roce_debug(void) {
  const char *value = getenv("ROCE_DEBUG");
  return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

int roce_fails(const char *call, int error, const char *why) {
  if (roce_debug()) dprintf(STDERR_FILENO, "libibverbs of roce run: %s: %s: %s\n", call, strerror(error), why);
  return errno = error;
}

void roce_say_once(atomic_int *said, const char *format, ...) {
  NOT_CANCELLED;
  const int saved = errno;
  va_list values;
  if (atomic_exchange(said, 1) != 0) return;
  va_start(values, format);
  vdprintf(STDERR_FILENO, format, values);
  va_end(values);
  errno = saved;
}

// The payload of a reply with an errno is the reason. Callers get none of it.
static void explain(enum roce_call call, const char *reason, size_t length, int error) {
  if (roce_debug() && error != EAGAIN)
    dprintf(STDERR_FILENO, "libibverbs of roce run: %s: %s: %.*s\n", roce_call_name(call), strerror(error), (int)length, reason);
}

// Requests leave from there, and replies are received there; longer messages get more.
#define ROOM_BYTES 4096

struct room {
  uint8_t *bytes;
  size_t length;
};

// Room for so many bytes; what is there is lost. 0 or errno.
static int grow(struct room *room, size_t length) {
  uint8_t *bytes;
  if (length <= room->length) return 0;
  // Not mremap: shared memory ends where it ended.
  bytes = roce_room(length);
  if (bytes == NULL) return ENOMEM;
  roce_free_room(room->bytes, room->length);
  *room = (struct room){bytes, length};
  return 0;
}

#define ENDED "the device has ended the connection"

static int exchange(int fd, enum roce_call call, struct room *room, const void *request, size_t request_bytes, void *reply, size_t reply_bytes) {
  uint32_t head[2] = {(uint32_t)request_bytes, call};
  if (request_bytes > ROCE_MAX_PAYLOAD) return EINVAL;
  if (grow(room, request_bytes + sizeof head > ROOM_BYTES ? request_bytes + sizeof head : ROOM_BYTES) != 0) return ENOMEM;
  memcpy(room->bytes, head, sizeof head);
  if (request_bytes > 0) memcpy(room->bytes + sizeof head, request, request_bytes);
  // The head is received there, too: another thread may have registered this stack.
  if (roce_write_all(fd, room->bytes, request_bytes + sizeof head) != 0 || roce_read_all(fd, room->bytes, sizeof head) != 0)
    return roce_fails(roce_call_name(call), EIO, ENDED);
  memcpy(head, room->bytes, sizeof head);
  if (head[0] > ROCE_MAX_PAYLOAD || grow(room, head[0]) != 0 || roce_read_all(fd, room->bytes, head[0]) != 0)
    return roce_fails(roce_call_name(call), EIO, ENDED);
  // The reply to a command of librdmacm has its form in any case.
  if (head[1] == 0 || call == ROCE_UCMA_COMMAND) {
    if (reply_bytes > 0) memcpy(reply, room->bytes, head[0] < reply_bytes ? head[0] : reply_bytes);
  } else explain(call, (const char *)room->bytes, head[0], (int)head[1]);
  return (int)head[1];
}

int roce_exchange(int fd, enum roce_call call, const void *request, size_t request_bytes, void *reply, size_t reply_bytes) {
  struct room room = {NULL, 0};
  int error;
  // Callers read the reply before they look at the error.
  if (reply_bytes > 0) memset(reply, 0, reply_bytes);
  error = exchange(fd, call, &room, request, request_bytes, reply, reply_bytes);
  roce_free_room(room.bytes, room.length);
  if (error != 0) errno = error;
  return error;
}

// Whether the device is this user's, or root's: it reads and writes the memory of its programs.
static int is_trusted(int fd) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

int roce_dial(void) {
  NOT_CANCELLED;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = getenv("ROCE_SOCKET");
  int fd, error;
  if (path == NULL || strlen(path) >= sizeof address.sun_path) {
    roce_fails("ROCE_SOCKET", ENOENT, "names no socket of a device: the program was not started by roce run");
    return -1;
  }
  strcpy(address.sun_path, path);
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  do error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error == 0 && !is_trusted(fd)) {
    static atomic_int said;
    error = EPERM;
    roce_say_once(&said, "libibverbs of roce run: the device at %s is another user's\n", path);
  }
  if (error == 0) return fd;
  close(fd);
  roce_fails(path, error, "no device can be reached there");
  return -1;
}

// System calls: the symbols of stat and fstat are of glibc 2.33, and filters of older containers refuse statx.
uint64_t roce_network(void) {
  struct stat about;
  return syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/net", &about, 0) == 0 ? about.st_ino : 0;
}

struct roce_file roce_file_of(int fd) {
  struct stat about = {0};
  const int saved = errno;
  const long result = syscall(SYS_fstat, fd, &about);
  errno = saved;
  return result == 0 ? (struct roce_file){fd, about.st_dev, about.st_ino} : (struct roce_file){.fd = fd};
}

// The mark is the signal that the file would send with O_ASYNC, which it does not have. A program's own file has no such signal, and each
// doorbell of the library has another: a context does not take the doorbell of a later one for its own.
#define MARKS 64

struct roce_file roce_marked_file_of(int fd) {
  static atomic_uint opened;
  struct roce_file file = roce_file_of(fd);
  const int saved = errno, mark = 1 + (int)(atomic_fetch_add(&opened, 1) % MARKS);
  // Not where the kernel's calls are emulated, and the mark does not stay.
  if (syscall(SYS_fcntl, fd, F_SETSIG, mark) == 0 && syscall(SYS_fcntl, fd, F_GETSIG) == mark) file.mark = mark;
  errno = saved;
  return file;
}

int roce_is_open(const struct roce_file *file) {
  const struct roce_file now = roce_file_of(file->fd);
  const int saved = errno;
  int is_marked;
  if (now.inode == 0 || now.inode != file->inode || now.device != file->device) return 0;
  is_marked = file->mark == 0 || syscall(SYS_fcntl, file->fd, F_GETSIG) == file->mark;
  errno = saved;
  return is_marked;
}

void roce_close_file(const struct roce_file *file) {
  if (roce_is_open(file)) close(file->fd);
}

void roce_report_network(void) {
  static atomic_int said;
  const char *path = getenv("ROCE_SOCKET");
  roce_say_once(&said, "libibverbs of roce run: the device at %s is in another network namespace: its packets would leave there\n",
                path != NULL ? path : "?");
}
