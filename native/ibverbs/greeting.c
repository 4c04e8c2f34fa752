// The first messages of a connection: who the program is, and what it and the device share.
#include <sys/socket.h>

#include "roce.h"

// A byte without a descriptor came: the device refuses.
#define NO_FILE (-2)

static int receive_file(int socket, uint8_t *room) {
  // The byte, then what comes with it.
  struct iovec data = {room, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = room + _Alignof(struct cmsghdr),
                           .msg_controllen = CMSG_SPACE(sizeof(int))};
  struct cmsghdr *header;
  ssize_t n;
  int fd;
  do n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n != 1) return errno = EIO, -1;
  // The kernel drops a descriptor that the process has no number for.
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    errno = EMFILE;
    return -1;
  }
  header = CMSG_FIRSTHDR(&message);
  if (header == NULL) return NO_FILE;
  if (header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof fd)) return -1;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

// The rest of a reply whose first byte was taken for a descriptor's.
static int refused(int socket, uint8_t *room) {
  uint32_t error = EIO;
  if (roce_read_all(socket, room, 7) == 0) memcpy(&error, room + 3, sizeof error);
  if (error == EXDEV) roce_report_network();
  errno = (int)error;
  return -1;
}

static void close_all(const int *fds, int count) {
  const int error = errno;
  while (count-- > 0) close(fds[count]);
  errno = error;
}

// Descriptors that the device sends: registered memory, rings, the doorbell, and a connection for the descriptor of this process's memory.
#define FILES 4
// More than any answer has.
#define ROOM_BYTES 4096

// `room`: where the device's answers are received.
static int introduce(struct roce_context *r, uint8_t *room) {
  struct {
    uint32_t length, call;
    struct roce_hello_request request;
  } hello = {sizeof hello.request, ROCE_HELLO, {.version = ROCE_PROTOCOL_VERSION, .network = roce_network()}};
  struct {
    uint32_t length, error;
    struct roce_hello_reply it;
  } reply;
  int fds[FILES];
  memcpy(hello.request.name, program_invocation_short_name, strnlen(program_invocation_short_name, sizeof hello.request.name));
  roce_memory_token(hello.request.token);
  if (roce_write_all(r->socket.fd, &hello, sizeof hello) != 0) return -1;
  for (int i = 0; i < FILES; i++) {
    fds[i] = receive_file(r->socket.fd, room);
    if (i == 0 && fds[0] == NO_FILE) return refused(r->socket.fd, room);
    if (fds[i] < 0) {
      close_all(fds, i);
      return -1;
    }
  }
  // Before the first call: the device takes it with the first region that needs it.
  r->attachable = roce_send_memory(fds[3]) == 0;
  close(fds[3]);
  if (roce_read_all(r->socket.fd, room, sizeof reply) != 0) {
    close_all(fds, 3);
    return errno = EIO, -1;
  }
  memcpy(&reply, room, sizeof reply);
  if (reply.length != sizeof reply.it || reply.error != 0) {
    close_all(fds, 3);
    return errno = EIO, -1;
  }
  memcpy(r->token, reply.it.token, sizeof r->token);
  if (roce_rings_open(r, fds[1], fds[2], &reply.it) != 0) {
    const int error = errno;
    close(fds[0]);
    errno = error;
    return -1;
  }
  if (roce_memory_open(r, fds[0]) == 0) return 0;
  roce_rings_close(r);
  return -1;
}

// Introduces the process; the device answers with what they share, and a token for connections of events.
int roce_greet(struct roce_context *r) {
  uint8_t *room = roce_room(ROOM_BYTES);
  int error = room != NULL ? introduce(r, room) : -1, saved = errno;
  roce_free_room(room, ROOM_BYTES);
  errno = saved;
  return error;
}
