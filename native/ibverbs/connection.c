// The connection of a context to the device: its calls, events and objects.
#include <poll.h>
#include <sys/socket.h>

#include "roce.h"

// Of the errors that programs print after that, none names the device.
static void report_end(void) {
  static atomic_int said;
  roce_say_once(&said, "libibverbs of roce run: the device has ended the connection\n");
}

void roce_report_closed(void) {
  static atomic_int said;
  roce_say_once(&said, "libibverbs of roce run: the program has closed a descriptor of the library: contexts that use it have ended\n");
}

// EIO of a call whose file the program has closed. Not under a lock: stderr may be a pipe that nobody reads.
static int was_closed(const char *call) {
  roce_report_closed();
  return roce_fails(call, EIO, CLOSED);
}

int roce_is_connected(const struct roce_context *r) {
  char byte;
  return roce_is_open(&r->socket) && recv(r->socket.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

void roce_end_connection(const struct roce_context *r) {
  if (roce_is_open(&r->socket)) shutdown(r->socket.fd, SHUT_RDWR);
}

int roce_ask(struct roce_context *r, enum roce_call call, const void *request, size_t request_bytes, void *reply, size_t reply_bytes) {
  NOT_CANCELLED;
  int error;
  if (!roce_may_call(r)) {
    if (reply_bytes > 0) memset(reply, 0, reply_bytes);
    return roce_fails(roce_call_name(call), EPERM, OF_PARENT);
  }
  pthread_mutex_lock(&r->lock);
  if (!roce_is_open(&r->socket)) {
    pthread_mutex_unlock(&r->lock);
    if (reply_bytes > 0) memset(reply, 0, reply_bytes);
    return was_closed(roce_call_name(call));
  }
  error = roce_exchange(r->socket.fd, call, request, request_bytes, reply, reply_bytes);
  // After half a message nothing can be understood any more.
  if (error == EIO) {
    roce_end_connection(r);
    report_end();
  }
  pthread_mutex_unlock(&r->lock);
  return error;
}

int roce_listen(struct roce_context *r, uint32_t handle) {
  NOT_CANCELLED;
  struct roce_listen_request request = {.handle = handle};
  int fd = roce_dial(), error;
  if (fd < 0) return -1;
  memcpy(request.token, r->token, sizeof request.token);
  error = roce_exchange(fd, ROCE_LISTEN, &request, sizeof request, NULL, 0);
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

int roce_read_event(const struct roce_context *r, const struct roce_file *from, struct roce_event *event) {
  size_t got = 0;
  uint8_t *room;
  int error = 0;
  // A child would take the parent's events.
  if (!roce_may_call(r)) {
    roce_fails("an event", EPERM, OF_PARENT);
    return -1;
  }
  // Bytes that come there are not ours.
  if (!roce_is_open(from)) {
    was_closed("an event");
    return -1;
  }
  room = roce_room(sizeof *event);
  if (room == NULL) return -1;
  while (got < sizeof *event && error == 0) {
    ssize_t n = recv(from->fd, room + got, sizeof *event - got, 0);
    if (n > 0) {
      got += (size_t)n;
      continue;
    }
    error = n == 0 ? EIO : errno;
    // Only between events may a call end without one.
    if (got > 0 && (error == EAGAIN || error == EINTR)) {
      struct pollfd rest = {.fd = from->fd, .events = POLLIN};
      poll(&rest, 1, -1);
      error = 0;
    }
  }
  memcpy(event, room, sizeof *event);
  roce_free_room(room, sizeof *event);
  if (error == 0) return 0;
  if (error == EIO) roce_fails("an event", error, "the device has ended the connection");
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
  if (!roce_may_call(r)) return roce_fails("an import", EPERM, OF_PARENT);
  pthread_mutex_lock(&r->objects_lock);
  for (object = r->objects; object != NULL && (object->handle != handle || object->kind != kind);) object = object->next;
  if (object != NULL) call(object->it, to);
  pthread_mutex_unlock(&r->objects_lock);
  return object != NULL ? 0 : roce_fails("an import", EINVAL, "there is no such handle");
}

int roce_destroy(struct ibv_context *context, uint32_t handle) {
  const struct roce_destroy_request request = {.handle = handle};
  return roce_ask_destroy(roce_of(context), &request);
}
