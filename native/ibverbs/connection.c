// The connection of a context to the device: its calls, events and objects.
#include <poll.h>
#include <sys/socket.h>

#include "roce.h"

int roce_call(struct roce_context *r, enum roce_call call, struct roce_message *m) {
  NOT_CANCELLED;
  int error;
  if (!roce_may_call(r)) return errno = EPERM;
  pthread_mutex_lock(&r->lock);
  error = roce_exchange(r->socket, call, m);
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

int roce_listen(struct roce_context *r, uint32_t handle) {
  NOT_CANCELLED;
  struct roce_message m;
  int fd = roce_dial(), error;
  if (fd < 0) return -1;
  roce_begin(&m);
  roce_bytes(&m, r->token, sizeof r->token);
  roce_u32(&m, handle);
  error = roce_exchange(fd, ROCE_LISTEN, &m);
  roce_end(&m);
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

int roce_read_event(const struct roce_context *r, int fd, uint32_t event[3]) {
  size_t got = 0;
  uint8_t *room;
  int error = 0;
  // A child would take the parent's events.
  if (!roce_may_call(r)) {
    errno = EPERM;
    return -1;
  }
  room = roce_room(ROCE_EVENT_BYTES);
  if (room == NULL) return -1;
  while (got < ROCE_EVENT_BYTES && error == 0) {
    ssize_t n = recv(fd, room + got, ROCE_EVENT_BYTES - got, 0);
    if (n > 0) {
      got += (size_t)n;
      continue;
    }
    error = n == 0 ? EIO : errno;
    // Only between events may a call end without one.
    if (got > 0 && (error == EAGAIN || error == EINTR)) {
      struct pollfd rest = {.fd = fd, .events = POLLIN};
      poll(&rest, 1, -1);
      error = 0;
    }
  }
  memcpy(event, room, ROCE_EVENT_BYTES);
  roce_free_room(room, ROCE_EVENT_BYTES);
  if (error == 0) return 0;
  errno = error;
  return -1;
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
