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

struct ibv_device **ibv_get_device_list(int *count) {
  struct ibv_device **list = calloc(2, sizeof *list);
  int fd = roce_dial();
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
    errno = EINVAL;
    return -1;
  }
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
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
  struct ibv_port_attr attr = {0};
  struct roce_message m;
  int error;
  roce_begin(&m);
  roce_u32(&m, port);
  error = roce_call(roce_of(context), ROCE_QUERY_PORT, &m);
  if (error == 0) {
    attr.state = roce_get32(&m);
    attr.max_mtu = roce_get32(&m);
    attr.active_mtu = roce_get32(&m);
    attr.gid_tbl_len = (int)roce_get32(&m);
    attr.port_cap_flags = roce_get32(&m);
    attr.max_msg_sz = roce_get32(&m);
    attr.bad_pkey_cntr = roce_get32(&m);
    attr.qkey_viol_cntr = roce_get32(&m);
    attr.pkey_tbl_len = (uint16_t)roce_get32(&m);
    attr.max_vl_num = (uint8_t)roce_get32(&m);
    attr.active_width = (uint8_t)roce_get32(&m);
    attr.active_speed = (uint8_t)roce_get32(&m);
    attr.phys_state = (uint8_t)roce_get32(&m);
    attr.link_layer = (uint8_t)roce_get32(&m);
    attr.flags = (uint8_t)roce_get32(&m);
    memset(to, 0, length);
    memcpy(to, &attr, length < sizeof attr ? length : sizeof attr);
  }
  roce_end(&m);
  return error;
}

// Of programs that were built before the struct grew.
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
  return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int query_attributes(struct ibv_context *context, struct ibv_device_attr *a, struct ibv_tm_caps *tm) {
  struct roce_message m;
  int error;
  roce_begin(&m);
  error = roce_call(roce_of(context), ROCE_QUERY_DEVICE, &m);
  if (error == 0) {
    memset(a, 0, sizeof *a);
    strcpy(a->fw_ver, "node-roce");
    a->node_guid = a->sys_image_guid = htobe64(roce_get64(&m));
    a->max_mr_size = roce_get64(&m);
    a->page_size_cap = roce_get64(&m);
    a->vendor_id = roce_get32(&m);
    a->vendor_part_id = roce_get32(&m);
    a->max_qp = (int)roce_get32(&m);
    a->max_qp_wr = (int)roce_get32(&m);
    a->device_cap_flags = roce_get32(&m);
    a->max_sge = (int)roce_get32(&m);
    a->max_sge_rd = (int)roce_get32(&m);
    a->max_cq = (int)roce_get32(&m);
    a->max_cqe = (int)roce_get32(&m);
    a->max_mr = (int)roce_get32(&m);
    a->max_pd = (int)roce_get32(&m);
    a->max_qp_rd_atom = (int)roce_get32(&m);
    a->max_res_rd_atom = (int)roce_get32(&m);
    a->max_qp_init_rd_atom = (int)roce_get32(&m);
    a->atomic_cap = roce_get32(&m);
    a->max_mw = (int)roce_get32(&m);
    a->max_mcast_grp = (int)roce_get32(&m);
    a->max_mcast_qp_attach = (int)roce_get32(&m);
    a->max_total_mcast_qp_attach = (int)roce_get32(&m);
    a->max_ah = (int)roce_get32(&m);
    a->max_srq = (int)roce_get32(&m);
    a->max_srq_wr = (int)roce_get32(&m);
    a->max_srq_sge = (int)roce_get32(&m);
    a->max_pkeys = (uint16_t)roce_get32(&m);
    a->local_ca_ack_delay = (uint8_t)roce_get32(&m);
    a->phys_port_cnt = (uint8_t)roce_get32(&m);
    tm->max_rndv_hdr_size = roce_get32(&m);
    tm->max_num_tags = roce_get32(&m);
    tm->flags = roce_get32(&m);
    tm->max_ops = roce_get32(&m);
    tm->max_sge = roce_get32(&m);
  }
  roce_end(&m);
  return error;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
  struct ibv_tm_caps none;
  return query_attributes(context, attr, &none);
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
  struct ibv_device_attr_ex all = {0};
  int error;
  if (input != NULL && input->comp_mask != 0) return errno = EINVAL;
  error = query_attributes(context, &all.orig_attr, &all.tm_caps);
  if (error != 0) return error;
  all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
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
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return errno = EINVAL;
  values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  return clock_gettime(CLOCK_MONOTONIC, &values->raw_clock) == 0 ? 0 : errno;
}

#define MAX_GIDS 256

static const union ibv_gid no_gid;

// The table: its length, or −errno. An entry that is free is `no_gid`.
static int gids(struct ibv_context *context, union ibv_gid table[MAX_GIDS]) {
  struct roce_message m;
  int error, length = 0;
  roce_begin(&m);
  error = roce_call(roce_of(context), ROCE_QUERY_GIDS, &m);
  if (error == 0) {
    length = (int)roce_get32(&m);
    if (length > MAX_GIDS) length = MAX_GIDS;
    for (int i = 0; i < length; i++) roce_get(&m, table[i].raw, 16);
  }
  roce_end(&m);
  return error != 0 ? -error : length;
}

static int is_free(const union ibv_gid *gid) { return memcmp(gid, &no_gid, sizeof no_gid) == 0; }

// An entry that is free is not an error.
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
  union ibv_gid table[MAX_GIDS];
  int length = gids(context, table);
  if (length < 0 || port != 1 || index < 0 || index >= length) {
    errno = length < 0 ? -length : EINVAL;
    return -1;
  }
  *gid = table[index];
  return 0;
}

static void fill_entry(struct ibv_gid_entry *to, size_t size, const union ibv_gid *gid, uint32_t index) {
  struct ibv_gid_entry entry = {.gid = *gid, .gid_index = index, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
  memset(to, 0, size);
  memcpy(to, &entry, size < sizeof entry ? size : sizeof entry);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size) {
  union ibv_gid gid;
  if (flags != 0 || port != 1 || index >= MAX_GIDS) return errno = EINVAL;
  if (ibv_query_gid(context, 1, (int)index, &gid) != 0) return errno;
  if (is_free(&gid)) return errno = ENODATA;
  fill_entry(entry, size, &gid, index);
  return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                             size_t size) {
  union ibv_gid table[MAX_GIDS];
  int length = gids(context, table);
  size_t count = 0;
  if (length < 0) return length;
  if (flags != 0) return -EINVAL;
  for (int i = 0; i < length; i++) {
    if (is_free(&table[i])) continue;
    if (count == most) return -EINVAL;
    fill_entry((struct ibv_gid_entry *)((char *)entries + count++ * size), size, &table[i], (uint32_t)i);
  }
  return (ssize_t)count;
}

// Private, but ibv_devinfo has it. Its enum is not that of the public header: 1 is RoCE v2.
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type) {
  union ibv_gid gid;
  *type = 1;
  return ibv_query_gid(context, port, (int)index, &gid);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
  (void)context;
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htobe16(0xffff);
  return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey) {
  (void)context;
  if (port == 1 && pkey == htobe16(0xffff)) return 0;
  errno = EINVAL;
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
  r->socket = roce_dial();
  if (r->socket < 0) goto no_socket;
  roce_lock_contexts();
  error = roce_greet(r);
  roce_unlock_contexts();
  if (error != 0) {
    if (errno != EXDEV && errno != EMFILE && errno != EAGAIN) errno = EIO;
    goto no_device;
  }
  pthread_mutex_init(&r->lock, NULL);
  pthread_mutex_init(&r->objects_lock, NULL);
  pthread_mutex_init(&context->mutex, NULL);
  context->device = device;
  context->cmd_fd = r->socket;
  context->num_comp_vectors = 1;
  context->abi_compat = __VERBS_ABI_IS_EXTENDED;
  r->verbs.sz = sizeof r->verbs;
  r->verbs.query_port = query_port;
  r->verbs.query_device_ex = query_device_ex;
  r->verbs.query_rt_values = query_rt_values;
  roce_set_memory_ops(r);
  roce_set_ring_ops(r);
  roce_set_extended_ops(r);
  roce_set_domain_ops(r);
  roce_set_tag_ops(r);
  context->async_fd = roce_listen(r, 0);
  if (context->async_fd >= 0) return context;
  roce_lock_contexts();
  roce_memory_close(r);
  roce_unlock_contexts();
  roce_rings_close(r);
no_device:
  saved = errno;
  close(r->socket);
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
  struct roce_message m;
  // No context that is opened meanwhile shall name this one.
  roce_lock_contexts();
  // Before the memory is the program's again: until then, peers read and write the device's.
  if (!roce_memory_imported(r)) {
    roce_begin(&m);
    roce_command(r, ROCE_CLOSE, &m);
  }
  stays = roce_memory_close(r);
  if (!stays) close(r->socket);
  roce_unlock_contexts();
  if (stays) return 0;
  close(context->async_fd);
  roce_rings_close(r);
  free(r);
  return 0;
}
