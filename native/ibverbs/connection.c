// The connection of a context to the device, and messages over it.
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "roce.h"

void roce_begin(struct roce_message *m) {
  memset(m, 0, sizeof *m);
  m->length = ROCE_HEADER_BYTES;
  m->room = 256;
  m->bytes = malloc(m->room);
  m->failed = m->bytes == NULL;
  // Callers read the reply before they look at the error.
  if (m->failed) m->length = 0;
}

static uint8_t *make(struct roce_message *m, size_t length) {
  if (m->failed) return NULL;
  if (length > m->room - m->length) {
    size_t room = (m->length + length) * 2;
    uint8_t *bytes = realloc(m->bytes, room);
    if (bytes == NULL) {
      m->failed = 1;
      return NULL;
    }
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
  free(m->bytes);
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

static int exchange(int fd, enum roce_call call, struct roce_message *m) {
  uint32_t head[2];
  if (m->failed) return errno = ENOMEM;
  head[0] = (uint32_t)(m->length - ROCE_HEADER_BYTES);
  head[1] = call;
  memcpy(m->bytes, head, sizeof head);
  if (m->length - ROCE_HEADER_BYTES > ROCE_MAX_PAYLOAD) return errno = EINVAL;
  if (roce_write_all(fd, m->bytes, m->length) != 0 || roce_read_all(fd, head, sizeof head) != 0)
    return errno = EIO;
  m->length = m->at = 0;
  if (head[0] > ROCE_MAX_PAYLOAD || (make(m, head[0]) == NULL && head[0] > 0)) return errno = EIO;
  if (roce_read_all(fd, m->bytes, head[0]) != 0) return errno = EIO;
  if (head[1] != 0) errno = (int)head[1];
  return (int)head[1];
}

int roce_call(struct roce_context *r, enum roce_call call, struct roce_message *m) {
  NOT_CANCELLED;
  int error;
  if (!roce_may_call(r)) return errno = EPERM;
  pthread_mutex_lock(&r->lock);
  error = exchange(r->socket, call, m);
  // After half a message nothing can be understood any more.
  if (error == EIO) shutdown(r->socket, SHUT_RDWR);
  pthread_mutex_unlock(&r->lock);
  return error;
}

int roce_command(struct roce_context *r, enum roce_call call, struct roce_message *m) {
  int error = roce_call(r, call, m);
  roce_end(m);
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

int roce_listen(struct roce_context *r, uint32_t handle) {
  NOT_CANCELLED;
  struct roce_message m;
  int fd = roce_dial(), error;
  if (fd < 0) return -1;
  roce_begin(&m);
  roce_bytes(&m, r->token, sizeof r->token);
  roce_u32(&m, handle);
  error = exchange(fd, ROCE_LISTEN, &m);
  roce_end(&m);
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

int roce_read_event(const struct roce_context *r, int fd, uint32_t event[3]) {
  size_t got = 0;
  // A child would take the parent's events.
  if (!roce_may_call(r)) {
    errno = EPERM;
    return -1;
  }
  while (got < ROCE_EVENT_BYTES) {
    ssize_t n = recv(fd, (uint8_t *)event + got, ROCE_EVENT_BYTES - got, 0);
    if (n == 0) {
      errno = EIO;
      return -1;
    }
    if (n < 0) {
      struct pollfd rest = {.fd = fd, .events = POLLIN};
      // Only between events may a call end without one.
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) return -1;
      poll(&rest, 1, -1);
      continue;
    }
    got += (size_t)n;
  }
  return 0;
}

void roce_add(struct roce_context *r, struct roce_object *object, uint32_t handle, void *it) {
  pthread_mutex_lock(&r->objects_lock);
  object->handle = handle;
  object->it = it;
  object->next = r->objects;
  r->objects = object;
  pthread_mutex_unlock(&r->objects_lock);
}

void roce_remove(struct roce_context *r, struct roce_object *object) {
  pthread_mutex_lock(&r->objects_lock);
  for (struct roce_object **at = &r->objects; *at != NULL; at = &(*at)->next) {
    if (*at != object) continue;
    *at = object->next;
    break;
  }
  pthread_mutex_unlock(&r->objects_lock);
}

int roce_with(struct roce_context *r, enum roce_kind kind, uint32_t handle, void (*call)(void *it, void *to), void *to) {
  struct roce_object *object;
  if (!roce_may_call(r)) return EPERM;
  pthread_mutex_lock(&r->objects_lock);
  for (object = r->objects; object != NULL && (object->handle != handle || object->kind != kind);) object = object->next;
  if (object != NULL) call(object->it, to);
  pthread_mutex_unlock(&r->objects_lock);
  return object != NULL ? 0 : EINVAL;
}

int roce_destroy(struct ibv_context *context, uint32_t handle) {
  struct roce_message m;
  roce_begin(&m);
  roce_u32(&m, handle);
  return roce_command(roce_of(context), ROCE_DESTROY, &m);
}
