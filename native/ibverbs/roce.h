// Shared by the files of the library: a context and its connection, messages, objects that events name.
#pragma once
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "messages.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

// In the header they are macros around inline functions; here they are the symbols.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// Kinds of objects that are looked for by their handle; handles are unique among all kinds.
enum roce_kind { ROCE_QUEUE, ROCE_PD, ROCE_MR };

// An object that an event may name, or that may be imported. It is in the list of its context while it lives.
struct roce_object {
  enum roce_kind kind;
  uint32_t handle;
  void *it;
  struct roce_object *next;
  uint32_t comp_reported, async_reported;
};

// A ring that the device has, too. Its control page and entries are words (messages.h).
struct roce_ring {
  pthread_mutex_t lock;
  uint32_t *words;
  uint32_t capacity, stride;
  uint32_t id;        // The value of its doorbells.
  uint32_t producer;  // Of a work queue: entries published.
};

// A descriptor of the library, and which file it is of. A program may close descriptors that are not its own, as daemons close all that they
// find, and open another file under the same number.
struct roce_file {
  int fd;
  dev_t device;
  ino_t inode;
  int mark;  // Of an eventfd: all of them have one inode. 0: it has none.
};

struct roce_context {
  struct roce_file socket;
  // Of the process that opened it. A child has the parent's socket, and must not speak on it.
  pid_t pid;
  int generation;
  uint8_t token[ROCE_TOKEN_BYTES];
  pthread_mutex_t lock;  // One call at a time.
  pthread_mutex_t objects_lock;
  struct roce_object *objects;
  struct roce_context *older;  // Of the contexts that share the memory.
  unsigned imports;            // Of this context: each is closed like the context itself.
  uint8_t *arena;              // The memory of all rings.
  size_t arena_bytes;
  struct roce_file doorbell;  // Wakes the device.
  struct roce_file events;    // Asynchronous ones: of the context's `async_fd`.
  int attachable;  // The device has the descriptor of this process's memory.
  struct roce_ring bells;
  pthread_mutex_t bells_lock;
  struct verbs_context verbs;  // Last: verbs_context has its ibv_context at the end.
};

static inline struct roce_context *roce_of(struct ibv_context *context) {
  return (struct roce_context *)((char *)context - offsetof(struct roce_context, verbs.context));
}

// Forks on the way to this process.
extern int roce_generation;

// A child has the parent's context, and the device is not to hear of it. In a PID namespace of its own it may have the parent's pid; a
// process that was made without handlers of pthread_atfork has its generation.
static inline int roce_may_call(const struct roce_context *r) {
  return getpid() == r->pid && r->generation == roce_generation;
}

static inline int roce_disable_cancel(void) {
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  return state;
}
static inline void roce_restore_cancel(const int *state) { pthread_setcancelstate(*state, NULL); }

// To the end of the block the thread is not cancelled: system calls of verbs are no cancellation points, and locks are held there.
#define NOT_CANCELLED __attribute__((cleanup(roce_restore_cancel), unused)) const int cancel_state = roce_disable_cancel()

struct roce_channel {
  struct ibv_comp_channel channel;
  struct roce_file events;
};

struct roce_td {
  struct ibv_td td;
  unsigned users;  // Parent domains with it.
};

struct roce_pd {
  struct ibv_pd pd;
  struct roce_object object;
  unsigned users;  // Parent domains over it.
  // Of a parent domain: what it stands on.
  struct roce_pd *protection;
  struct roce_td *thread;
};

struct roce_mr {
  struct ibv_mr mr;
  struct roce_object object;
  unsigned access;
  uint32_t kind;  // roce_kind_of_memory.
};

struct roce_qp {
  struct ibv_qp_ex ex;  // First: programs have its address.
  struct roce_object object;
  struct roce_ring sends, receives;
  int extended;
  unsigned max_sge, max_recv_sge, max_inline;
  // From wr_start to wr_complete the thread holds the lock of `sends`. The last request is open for setters; those before it are in
  // the ring, not published.
  struct ibv_send_wr wr;
  struct ibv_sge *sge;
  uint8_t *inline_data;
  size_t sge_bytes, inline_bytes;
  unsigned count;
  int is_open, error;
};

struct roce_completion {
  struct ibv_wc wc;
  uint64_t time;  // Nanoseconds of CLOCK_MONOTONIC, of a queue that was made so.
  struct ibv_wc_tm_info tag;  // The same.
};

struct roce_cq {
  struct ibv_cq_ex ex;
  struct roce_object object;
  struct roce_ring ring;
  // Completions of the rings before a resize.
  struct roce_completion *older;
  unsigned first_held, held;
  struct roce_completion current;  // Of ibv_start_poll and ibv_next_poll.
};

struct roce_srq {
  struct ibv_srq srq;
  struct roce_object object;
  struct roce_ring receives;
  unsigned max_sge;
  uint32_t number;
};

// The engine's number names it in entries.
struct roce_ah {
  struct ibv_ah ah;
  uint32_t number;
};

struct roce_mw {
  struct ibv_mw mw;
  uint32_t number;
};

// Not in the header of every release.
#define ROCE_WR_ATOMIC_WRITE 15

// Bits of device_cap_flags_ex, which older headers have not.
#define ROCE_DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define ROCE_DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

// Memory that no conversion of pages makes read-only (pages.c): the kernel can write there at any time. NULL where none is left.
void *roce_room(size_t bytes);
void roce_free_room(void *room, size_t bytes);

// The same as roce_ask over a connection that is no context's.
int roce_exchange(int fd, enum roce_call call, const void *request, size_t request_bytes, void *reply, size_t reply_bytes);

// Introduces the process over the context's connection, and takes what the device shares with it. 0, or −1 and errno.
int roce_greet(struct roce_context *r);

// A line on stderr, once a process; `said` is of this line alone. Writing is a cancellation point, and callers hold locks and descriptors. errno stays.
void roce_say_once(atomic_int *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Whether ROCE_DEBUG asks for the reasons of calls that fail, on stderr.
int roce_debug(void);
// Prints it then: errno has no room for it. Sets errno to the error, and returns it.
int roce_fails(const char *call, int error, const char *why);
// The same from a verb of that name.
#define FAILS(error, why) roce_fails(__func__, error, why)
#define CLOSED "the program has closed a descriptor of the library"
#define OF_PARENT "the context is the parent's, and a child has none of it"

// A descriptor and its file; no inode where that can't be found.
struct roce_file roce_file_of(int fd);
// The same of an eventfd, which gets a mark.
struct roce_file roce_marked_file_of(int fd);
// Whether the descriptor is still of the file.
int roce_is_open(const struct roce_file *file);
// Closes it then.
void roce_close_file(const struct roce_file *file);
// Whether neither the program nor the device has ended the connection.
int roce_is_connected(const struct roce_context *r);
// Ends the connection, if the program has not closed it: calls and polls fail from now on.
void roce_end_connection(const struct roce_context *r);
// Explains on stderr, once, why contexts have ended: the program has closed a descriptor of theirs.
void roce_report_closed(void);

// All of the bytes, through signals. 0 or −1.
int roce_write_all(int fd, const void *bytes, size_t length);
int roce_read_all(int fd, void *bytes, size_t length);
// The number of this process's network namespace; 0 where /proc does not show it. The device compares it with its own.
uint64_t roce_network(void);
// Explains EXDEV on stderr, once.
void roce_report_network(void);
// A connection to the device, or −1 and errno.
int roce_dial(void);
// A descriptor that events arrive at: of a channel, or of the context (handle 0). −1 and errno.
int roce_listen(struct roce_context *r, uint32_t handle);
// Reads one event. 0, or −1 and errno (EAGAIN for a descriptor that does not wait).
int roce_read_event(const struct roce_context *r, const struct roce_file *from, struct roce_event *event);

void roce_add(struct roce_context *r, struct roce_object *object, uint32_t handle, void *it);
void roce_remove(struct roce_context *r, struct roce_object *object);

// Finds an object by its handle, and calls with it while it is in the list. 0, or EINVAL where there is none, EPERM in a child.
int roce_with(struct roce_context *r, enum roce_kind kind, uint32_t handle, void (*call)(void *it, void *to), void *to);

// Destroys what a handle stands for.
int roce_destroy(struct ibv_context *context, uint32_t handle);

// The file behind registered memory, one for the process: every context of it shares it.
int roce_memory_open(struct roce_context *r, int fd);
// Whether the context stays when it is closed, as it was imported.
int roce_memory_imported(const struct roce_context *r);
// 1 where an import of the context is closed, and the context stays.
int roce_memory_close(struct roce_context *r);
// The context of this process whose connection has the descriptor, with one import more; NULL where there is none.
struct roce_context *roce_import(int fd);
// Whether there is such a file, and the token of it for the next context.
int roce_memory_token(uint8_t token[ROCE_TOKEN_BYTES]);
// Held while a context is opened or closed.
void roce_lock_contexts(void);
void roce_unlock_contexts(void);
// Not decided yet: in addition to the values of roce_kind_of_memory.
#define ROCE_MEMORY_EITHER UINT32_MAX
// Lets the device reach a range: its pages become pages of the common file, or stay as they are. `kind` takes the way, and may
// demand one. 0 or errno.
int roce_share(const struct roce_context *r, void *address, size_t length, unsigned access, uint32_t *kind);
// Takes back the pages of it that no other region has.
void roce_unshare(const struct roce_context *r, void *address, size_t length, uint32_t kind);

// Looks what the program runs in, before the first roce_attach_reason. Not under a lock: dlsym allocates, and has locks.
void roce_know_program(void);
// Why memory of the program has to stay what it is; NULL where it may be shared.
const char *roce_attach_reason(uintptr_t start, uintptr_t end);
// Whether only sharing is allowed, by ROCE_MEMORY=share.
int roce_shares_only(void);
// Sends the device the descriptor of this process's memory. 0 or −1.
int roce_send_memory(int end);
// The device may have written there: for valgrind's memcheck, which does not see it.
void roce_mark_defined(void *address, size_t length);

struct roce_address roce_address_of(const struct ibv_ah_attr *attr);
void roce_get_address(const struct roce_address *from, struct ibv_ah_attr *attr);
// Maps the rings. Takes both descriptors, also where it fails.
int roce_rings_open(struct roce_context *r, int arena, int doorbell, const struct roce_hello_reply *shape);
void roce_rings_close(struct roce_context *r);
// Where a work queue lies; the lock is the caller's.
void roce_take_queue(struct roce_context *r, const struct roce_queue_place *place, struct roce_ring *ring);
// Take the next completion as `current`: 1, 0, or −1 and errno. After a start that took one, other
// threads wait until the end: to poll, to reset a queue pair of the queue, to resize it.
int roce_start_poll(struct roce_cq *own);
int roce_next_poll(struct roce_cq *own);
void roce_end_poll(struct roce_cq *own);
// Begins a session of ibv_wr_start, which other threads wait for.
void roce_start_sends(struct roce_qp *q);
// The open request takes its place in the ring.
void roce_put_open(struct roce_qp *q);
// Ends it: all is posted, or nothing and the errno of the first failure is returned.
int roce_end_sends(struct roce_qp *q, int posts);
// Completions are in `next` from now on; those before are kept for the next polls, in `room`. The caller holds the lock.
void roce_move_completions(struct roce_cq *cq, const struct roce_ring *next, struct roce_completion *room);
// Drops the completions of a queue pair that was reset.
void roce_forget_completions(struct ibv_cq *cq, uint32_t qp_num);
struct ibv_cq *roce_create_cq(struct ibv_context *context, uint32_t cqe, void *cq_context, struct ibv_comp_channel *channel,
                              uint32_t comp_vector, uint32_t bits);
// With a completion queue, of tag matching.
struct ibv_srq *roce_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_cq *cq,
                                const struct ibv_tm_cap *tags);
struct ibv_qp *roce_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
// Fills in the operations of a context.
void roce_set_post_ops(struct roce_context *r);
void roce_set_poll_ops(struct roce_context *r);
void roce_set_other_ops(struct roce_context *r);
void roce_set_extended_ops(struct roce_context *r);
void roce_set_memory_ops(struct roce_context *r);
void roce_set_domain_ops(struct roce_context *r);
void roce_set_tag_ops(struct roce_context *r);
