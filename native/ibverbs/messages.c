// Messages to the device, and the connections that they go over. Part of both libraries.
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "roce.h"

void *roce_room(size_t bytes) {
  void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return room == MAP_FAILED ? NULL : room;
}

void roce_free_room(void *room, size_t bytes) {
  if (room != NULL) munmap(room, bytes);
}

void roce_begin(struct roce_message *m) {
  memset(m, 0, sizeof *m);
  m->length = ROCE_HEADER_BYTES;
  m->room = ROCE_MESSAGE_BYTES;
  // The reply is received there.
  m->bytes = roce_room(m->room);
  m->failed = m->bytes == NULL;
  // Callers read the reply before they look at the error.
  if (m->failed) m->length = 0;
}

static uint8_t *make(struct roce_message *m, size_t length) {
  if (m->failed) return NULL;
  if (length > m->room - m->length) {
    size_t room = (m->length + length) * 2;
    // Not mremap: shared memory ends where it ended.
    uint8_t *bytes = roce_room(room);
    if (bytes == NULL) {
      m->failed = 1;
      return NULL;
    }
    memcpy(bytes, m->bytes, m->length);
    roce_free_room(m->bytes, m->room);
    m->bytes = bytes;
    m->room = room;
  }
  m->length += length;
  return m->bytes + m->length - length;
}

void roce_u32(struct roce_message *m, uint32_t value) { roce_bytes(m, &value, sizeof value); }

void roce_u64(struct roce_message *m, uint64_t value) { roce_bytes(m, &value, sizeof value); }

void roce_bytes(struct roce_message *m, const void *from, size_t length) {
  uint8_t *to = make(m, length);
  if (to != NULL && length > 0) memcpy(to, from, length);
}

uint32_t roce_get32(struct roce_message *m) {
  uint32_t value = 0;
  roce_get(m, &value, sizeof value);
  return value;
}

uint64_t roce_get64(struct roce_message *m) {
  uint64_t value = 0;
  roce_get(m, &value, sizeof value);
  return value;
}

void roce_get(struct roce_message *m, void *to, size_t length) {
  if (length > m->length - m->at) {
    memset(to, 0, length);
    m->at = m->length;
    return;
  }
  memcpy(to, m->bytes + m->at, length);
  m->at += length;
}

void roce_end(struct roce_message *m) {
  int saved = errno;
  roce_free_room(m->bytes, m->room);
  m->bytes = NULL;
  errno = saved;
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

// The payload of a reply with an errno is the reason. Callers get none of it.
static void explain(enum roce_call call, struct roce_message *m, int error) {
  static const char *const names[] = {
      [ROCE_HELLO] = "HELLO",
      [ROCE_LISTEN] = "LISTEN",
      [ROCE_QUERY_DEVICE] = "QUERY_DEVICE",
      [ROCE_QUERY_PORT] = "QUERY_PORT",
      [ROCE_QUERY_GIDS] = "QUERY_GIDS",
      [ROCE_ALLOC_PD] = "ALLOC_PD",
      [ROCE_REG_MR] = "REG_MR",
      [ROCE_REREG_MR] = "REREG_MR",
      [ROCE_CREATE_CHANNEL] = "CREATE_CHANNEL",
      [ROCE_CREATE_CQ] = "CREATE_CQ",
      [ROCE_RESIZE_CQ] = "RESIZE_CQ",
      [ROCE_CREATE_SRQ] = "CREATE_SRQ",
      [ROCE_MODIFY_SRQ] = "MODIFY_SRQ",
      [ROCE_QUERY_SRQ] = "QUERY_SRQ",
      [ROCE_CREATE_AH] = "CREATE_AH",
      [ROCE_CREATE_QP] = "CREATE_QP",
      [ROCE_MODIFY_QP] = "MODIFY_QP",
      [ROCE_QUERY_QP] = "QUERY_QP",
      [ROCE_ATTACH_MCAST] = "ATTACH_MCAST",
      [ROCE_DETACH_MCAST] = "DETACH_MCAST",
      [ROCE_ALLOC_MW] = "ALLOC_MW",
      [ROCE_DESTROY] = "DESTROY",
      [ROCE_POST_SRQ_OP] = "POST_SRQ_OP",
      [ROCE_UCMA_OPEN] = "UCMA_OPEN",
      [ROCE_UCMA_COMMAND] = "UCMA_COMMAND",
      [ROCE_CLOSE] = "CLOSE",
  };
  const char *name = (size_t)call < sizeof names / sizeof *names && names[call] != NULL ? names[call] : "?";
  if (roce_debug() && error != EAGAIN)
    dprintf(STDERR_FILENO, "libibverbs of roce run: %s: %s: %.*s\n", name, strerror(error), (int)m->length, (const char *)m->bytes);
  m->length = 0;
}

int roce_exchange(int fd, enum roce_call call, struct roce_message *m) {
  uint32_t head[2];
  if (m->failed) return errno = ENOMEM;
  head[0] = (uint32_t)(m->length - ROCE_HEADER_BYTES);
  head[1] = call;
  memcpy(m->bytes, head, sizeof head);
  if (m->length - ROCE_HEADER_BYTES > ROCE_MAX_PAYLOAD) return errno = EINVAL;
  // The head is received there, too: another thread may have registered this stack.
  if (roce_write_all(fd, m->bytes, m->length) != 0 || roce_read_all(fd, m->bytes, sizeof head) != 0)
    return errno = EIO;
  memcpy(head, m->bytes, sizeof head);
  m->length = m->at = 0;
  if (head[0] > ROCE_MAX_PAYLOAD || (make(m, head[0]) == NULL && head[0] > 0)) return errno = EIO;
  if (roce_read_all(fd, m->bytes, head[0]) != 0) return errno = EIO;
  if (head[1] != 0) {
    if (call != ROCE_UCMA_COMMAND) explain(call, m, (int)head[1]);
    errno = (int)head[1];
  }
  return (int)head[1];
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
    errno = ENOENT;
    return -1;
  }
  strcpy(address.sun_path, path);
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  do error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error == 0 && !is_trusted(fd)) {
    static int is_reported;
    error = EACCES;
    if (!is_reported) dprintf(STDERR_FILENO, "libibverbs of roce run: the device at %s is another user's\n", path);
    is_reported = 1;
  }
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

uint64_t roce_network(void) {
  struct stat about;
  return stat("/proc/self/ns/net", &about) == 0 ? about.st_ino : 0;
}

void roce_report_network(void) {
  static int is_reported;
  const char *path = getenv("ROCE_SOCKET");
  if (!is_reported)
    dprintf(STDERR_FILENO, "libibverbs of roce run: the device at %s is in another network namespace: its packets would leave there\n",
            path != NULL ? path : "?");
  is_reported = 1;
}
