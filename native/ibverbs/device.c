// The device: listing, opening, asking.
#include <endian.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "roce.h"

static struct ibv_device the_device = {
    .node_type = IBV_NODE_CA,
    .transport_type = IBV_TRANSPORT_IB,
    .name = "roce0",
    .dev_name = "uverbs0",
    .dev_path = "/sys/class/infiniband_verbs/uverbs0",
    .ibdev_path = "/sys/class/infiniband/roce0",
};

// A program prints that there are no devices, which misleads. roce_dial names the user of another user's device.
static void report_none(int error) {
  static atomic_int said;
  const char *path = getenv("ROCE_SOCKET");
  if (path != NULL && error != EPERM) roce_say_once(&said, "libibverbs of roce run: no device answers at %s: %s\n", path, strerror(error));
}

struct ibv_device **ibv_get_device_list(int *count) {
  struct ibv_device **list = calloc(2, sizeof *list);
  int fd = roce_dial();
  if (fd < 0) report_none(errno);
  if (count != NULL) *count = 0;
  if (list == NULL) {
    if (fd >= 0) close(fd);
    return NULL;
  }
  if (fd < 0) return list;
  close(fd);
  list[0] = &the_device;
  if (count != NULL) *count = 1;
  return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

int ibv_get_device_index(struct ibv_device *device) {
  (void)device;
  return -1;  // None, as no driver of the kernel stands behind it.
}

__be64 ibv_get_device_guid(struct ibv_device *device) {
  struct ibv_context *context = ibv_open_device(device);
  struct ibv_device_attr attr;
  __be64 guid = 0;
  if (context == NULL) return 0;
  if (ibv_query_device(context, &attr) == 0) guid = attr.node_guid;
  ibv_close_device(context);
  return guid;
}

const char *ibv_get_sysfs_path(void) { return "/sys"; }

int ibv_read_sysfs_file(const char *folder, const char *file, char *to, size_t size) {
  char path[PATH_MAX];
  ssize_t n;
  int fd;
  if (size == 0 || (size_t)snprintf(path, sizeof path, "%s/%s", folder, file) >= sizeof path) {
    FAILS(EINVAL, "the path is too long, or there is no room");
    return -1;
  }
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FAILS(errno, path), -1;
  n = read(fd, to, size - 1);
  close(fd);
  if (n < 0) return -1;
  if (n > 0 && to[n - 1] == '\n') n--;
  to[n] = '\0';
  return (int)n;
}

// A child gets copies of the registered pages (memory.c).
int ibv_fork_init(void) { return 0; }

enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }

int ibv_dontfork_range(void *base, size_t size) {
  (void)base, (void)size;
  return 0;
}

int ibv_dofork_range(void *base, size_t size) {
  (void)base, (void)size;
  return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *to, size_t length) {
  const struct roce_query_port_request request = {.port = port};
  struct roce_query_port_reply reply;
  struct ibv_port_attr attr;
  const int error = roce_ask_query_port(roce_of(context), &request, &reply);
  if (error != 0) return error;
  attr = (struct ibv_port_attr){
      .state = reply.state,
      .gid_tbl_len = (int)reply.gid_tbl_len,
      .max_mtu = reply.max_mtu,
      .active_mtu = reply.active_mtu,
      .port_cap_flags = reply.port_cap_flags,
      .max_msg_sz = reply.max_msg_sz,
      .bad_pkey_cntr = reply.bad_pkey_cntr,
      .qkey_viol_cntr = reply.qkey_viol_cntr,
      .pkey_tbl_len = (uint16_t)reply.pkey_tbl_len,
      .max_vl_num = (uint8_t)reply.max_vl_num,
      .active_width = (uint8_t)reply.active_width,
      .active_speed = (uint8_t)reply.active_speed,
      .phys_state = (uint8_t)reply.phys_state,
      .link_layer = (uint8_t)reply.link_layer,
      .flags = (uint8_t)reply.flags,
  };
  memset(to, 0, length);
  memcpy(to, &attr, length < sizeof attr ? length : sizeof attr);
  return 0;
}

// Of programs that were built before the struct grew.
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
  return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int query_attributes(struct ibv_context *context, struct ibv_device_attr *a, struct ibv_tm_caps *tm) {
  struct roce_query_device_reply reply;
  const int error = roce_ask_query_device(roce_of(context), &reply);
  if (error != 0) return error;
  *a = (struct ibv_device_attr){
      .fw_ver = "node-roce",
      .node_guid = htobe64(reply.node_guid),
      .sys_image_guid = htobe64(reply.node_guid),
      .max_mr_size = reply.max_mr_size,
      .page_size_cap = reply.page_size_cap,
      .vendor_id = reply.vendor_id,
      .vendor_part_id = reply.vendor_part_id,
      .device_cap_flags = reply.device_cap_flags,
      .atomic_cap = reply.atomic_cap,
      .max_qp = (int)reply.max_qp,
      .max_qp_wr = (int)reply.max_qp_wr,
      .max_sge = (int)reply.max_sge,
      .max_sge_rd = (int)reply.max_sge_rd,
      .max_cq = (int)reply.max_cq,
      .max_cqe = (int)reply.max_cqe,
      .max_mr = (int)reply.max_mr,
      .max_pd = (int)reply.max_pd,
      .max_qp_rd_atom = (int)reply.max_qp_rd_atom,
      .max_res_rd_atom = (int)reply.max_res_rd_atom,
      .max_qp_init_rd_atom = (int)reply.max_qp_init_rd_atom,
      .max_mw = (int)reply.max_mw,
      .max_mcast_grp = (int)reply.max_mcast_grp,
      .max_mcast_qp_attach = (int)reply.max_mcast_qp_attach,
      .max_total_mcast_qp_attach = (int)reply.max_total_mcast_qp_attach,
      .max_ah = (int)reply.max_ah,
      .max_srq = (int)reply.max_srq,
      .max_srq_wr = (int)reply.max_srq_wr,
      .max_srq_sge = (int)reply.max_srq_sge,
      .max_pkeys = (uint16_t)reply.max_pkeys,
      .local_ca_ack_delay = (uint8_t)reply.local_ca_ack_delay,
      .phys_port_cnt = (uint8_t)reply.phys_port_cnt,
  };
  *tm = (struct ibv_tm_caps){
      .max_rndv_hdr_size = reply.tm_max_rndv_hdr_size,
      .max_num_tags = reply.tm_max_num_tags,
      .flags = reply.tm_flags,
      .max_ops = reply.tm_max_ops,
      .max_sge = reply.tm_max_sge,
  };
  return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
  struct ibv_tm_caps none;
  return query_attributes(context, attr, &none);
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
  struct ibv_device_attr_ex all = {0};
  int error;
  if (input != NULL && input->comp_mask != 0) return roce_fails("ibv_query_device_ex", EINVAL, "input.comp_mask");
  error = query_attributes(context, &all.orig_attr, &all.tm_caps);
  if (error != 0) return error;
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags | ROCE_DEVICE_FLUSH_GLOBAL | ROCE_DEVICE_ATOMIC_WRITE;
  all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
  // Times of completions are nanoseconds of CLOCK_MONOTONIC; the clock is in kHz.
  all.completion_timestamp_mask = UINT64_MAX;
  all.hca_core_clock = 1000000;
  memset(attr, 0, size);
  memcpy(attr, &all, size < sizeof all ? size : sizeof all);
  return 0;
}

// The clock of the times of completions.
static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values) {
  (void)context;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return roce_fails("ibv_query_rt_values_ex", EINVAL, "comp_mask");
  values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  return clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) == 0 ? 0 : errno;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
  (void)context;
  if (port != 1 || index != 0) {
    FAILS(EINVAL, "port_num or index: the table has one entry");
    return -1;
  }
  *pkey = htobe16(0xffff);
  return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
  (void)context;
  if (port == 1 && pkey == htobe16(0xffff)) return 0;
  FAILS(EINVAL, "the table has 0xffff alone");
  return -1;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
  NOT_CANCELLED;
  struct roce_context *r = calloc(1, sizeof *r);
  struct ibv_context *context;
  int saved, error;
  if (r == NULL) return NULL;
  context = &r->verbs.context;
  r->pid = getpid();
  r->generation = roce_generation;
  r->socket = roce_file_of(roce_dial());
  if (r->socket.fd < 0) goto no_socket;
  roce_lock_contexts();
  error = roce_greet(r);
  roce_unlock_contexts();
  if (error != 0) {
    if (errno != EXDEV && errno != EMFILE && errno != EAGAIN) errno = EIO;
    FAILS(errno, errno == EIO ? "the device has ended the connection: is it of another version?" : "it was not introduced to the device");
    goto no_device;
  }
  pthread_mutex_init(&r->lock, NULL);
  pthread_mutex_init(&r->objects_lock, NULL);
  pthread_mutex_init(&context->mutex, NULL);
  context->device = device;
  context->cmd_fd = r->socket.fd;
  context->num_comp_vectors = 1;
  context->abi_compat = __VERBS_ABI_IS_EXTENDED;
  r->verbs.sz = sizeof r->verbs;
  r->verbs.query_port = query_port;
  r->verbs.query_device_ex = query_device_ex;
  r->verbs.query_rt_values = query_rt_values;
  roce_set_memory_ops(r);
  roce_set_post_ops(r);
  roce_set_poll_ops(r);
  roce_set_other_ops(r);
  roce_set_extended_ops(r);
  roce_set_domain_ops(r);
  roce_set_tag_ops(r);
  r->events = roce_file_of(roce_listen(r, 0));
  context->async_fd = r->events.fd;
  if (context->async_fd >= 0) return context;
  roce_lock_contexts();
  roce_memory_close(r);
  roce_unlock_contexts();
  roce_rings_close(r);
no_device:
  saved = errno;
  close(r->socket.fd);
  errno = saved;
no_socket:
  saved = errno;
  free(r);
  errno = saved;
  return NULL;
}

int ibv_close_device(struct ibv_context *context) {
  NOT_CANCELLED;
  struct roce_context *r = roce_of(context);
  int stays;
  // No context that is opened meanwhile shall name this one.
  roce_lock_contexts();
  // Before the memory is the program's again: until then, peers read and write the device's.
  if (!roce_memory_imported(r)) roce_ask_close(r);
  stays = roce_memory_close(r);
  if (!stays) roce_close_file(&r->socket);
  roce_unlock_contexts();
  if (stays) return 0;
  roce_close_file(&r->events);
  roce_rings_close(r);
  free(r);
  return 0;
}
