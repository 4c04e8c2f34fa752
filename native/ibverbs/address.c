// Addresses: the table of GIDs, address vectors and address handles.
#include "roce.h"

static const union ibv_gid no_gid;

// The table. An entry that is free is `no_gid`.
static int gids(struct ibv_context *context, struct roce_query_gids_reply *table) {
  const int error = roce_ask_query_gids(roce_of(context), table);
  if (table->gids_count > COUNT(table->gids)) table->gids_count = COUNT(table->gids);
  return error;
}

static int is_free(const uint8_t gid[16]) { return memcmp(gid, no_gid.raw, sizeof no_gid.raw) == 0; }

// An entry that is free is not an error.
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
  struct roce_query_gids_reply table;
  int error = gids(context, &table);
  if (error == 0 && (port != 1 || index < 0 || (uint32_t)index >= table.gids_count)) error = FAILS(EINVAL, "port_num or index: there is no such entry");
  if (error != 0) {
    errno = error;
    return -1;
  }
  memcpy(gid->raw, table.gids[index], sizeof gid->raw);
  return 0;
}

static void fill_entry(struct ibv_gid_entry *to, size_t size, const uint8_t gid[16], uint32_t index) {
  struct ibv_gid_entry entry = {.gid_index = index, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
  memcpy(entry.gid.raw, gid, sizeof entry.gid.raw);
  memset(to, 0, size);
  memcpy(to, &entry, size < sizeof entry ? size : sizeof entry);
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size) {
  union ibv_gid gid;
  if (flags != 0 || port != 1 || index > INT32_MAX) return FAILS(EINVAL, "flags, port_num or index");
  if (ibv_query_gid(context, 1, (int)index, &gid) != 0) return errno;
  if (is_free(gid.raw)) return FAILS(ENODATA, "the entry is free");
  fill_entry(entry, size, gid.raw, index);
  return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most, uint32_t flags,
                             size_t size) {
  struct roce_query_gids_reply table;
  const int error = gids(context, &table);
  size_t count = 0;
  if (error != 0) return -error;
  if (flags != 0) return -FAILS(EINVAL, "flags");
  for (uint32_t i = 0; i < table.gids_count; i++) {
    if (is_free(table.gids[i])) continue;
    if (count == most) return -FAILS(EINVAL, "more entries than there is room for");
    fill_entry((struct ibv_gid_entry *)((char *)entries + count++ * size), size, table.gids[i], i);
  }
  return (ssize_t)count;
}

// Private, but ibv_devinfo has it. Its enum is not that of the public header: 1 is RoCE v2.
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type) {
  union ibv_gid gid;
  *type = 1;
  return ibv_query_gid(context, port, (int)index, &gid);
}

struct roce_address roce_address_of(const struct ibv_ah_attr *attr) {
  struct roce_address to = {
      .flow_label = attr->grh.flow_label,
      .sgid_index = attr->grh.sgid_index,
      .hop_limit = attr->grh.hop_limit,
      .traffic_class = attr->grh.traffic_class,
      .dlid = attr->dlid,
      .sl = attr->sl,
      .src_path_bits = attr->src_path_bits,
      .static_rate = attr->static_rate,
      .is_global = attr->is_global != 0,
      .port_num = attr->port_num,
  };
  memcpy(to.dgid, attr->grh.dgid.raw, sizeof to.dgid);
  return to;
}

void roce_get_address(const struct roce_address *from, struct ibv_ah_attr *attr) {
  memcpy(attr->grh.dgid.raw, from->dgid, sizeof from->dgid);
  attr->grh.flow_label = from->flow_label;
  attr->grh.sgid_index = (uint8_t)from->sgid_index;
  attr->grh.hop_limit = (uint8_t)from->hop_limit;
  attr->grh.traffic_class = (uint8_t)from->traffic_class;
  attr->dlid = (uint16_t)from->dlid;
  attr->sl = (uint8_t)from->sl;
  attr->src_path_bits = (uint8_t)from->src_path_bits;
  attr->static_rate = (uint8_t)from->static_rate;
  attr->is_global = (uint8_t)from->is_global;
  attr->port_num = (uint8_t)from->port_num;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
  struct roce_ah *own = calloc(1, sizeof *own);
  struct ibv_ah *ah = &own->ah;
  const struct roce_create_ah_request request = {.pd = pd->handle, .attr = roce_address_of(attr)};
  struct roce_create_ah_reply reply;
  int error;
  if (own == NULL) return NULL;
  error = roce_ask_create_ah(roce_of(pd->context), &request, &reply);
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = reply.handle;
  own->number = reply.number;
  if (error == 0) return ah;
  free(own);
  errno = error;
  return NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah) {
  int error = roce_destroy(ah->context, ah->handle);
  if (error == 0) free(ah);
  return error;
}

// The way back to who sent a datagram: from the 40 bytes before its payload, of which an IPv4 header is the last 20.
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                        struct ibv_ah_attr *attr) {
  const uint8_t *bytes = (const uint8_t *)grh, *own = bytes + 24;
  union ibv_gid gid;
  memset(attr, 0, sizeof *attr);
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) {
    FAILS(EINVAL, "wc: the completion has no GRH");
    return -1;
  }
  attr->is_global = 1;
  attr->grh.hop_limit = 0xff;
  if (bytes[0] >> 4 == 6) {
    memcpy(attr->grh.dgid.raw, bytes + 8, 16);
    memcpy(gid.raw, own, 16);
    attr->grh.traffic_class = (uint8_t)(bytes[0] << 4 | bytes[1] >> 4);
    attr->grh.flow_label = (uint32_t)(bytes[1] & 15) << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
  } else {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(attr->grh.dgid.raw, mapped, 12);
    memcpy(attr->grh.dgid.raw + 12, bytes + 32, 4);
    memcpy(gid.raw, mapped, 12);
    memcpy(gid.raw + 12, bytes + 36, 4);
    attr->grh.traffic_class = bytes[21];
  }
  for (int i = 0;; i++) {
    union ibv_gid at;
    if (ibv_query_gid(context, port, i, &at) != 0) return -1;
    if (memcmp(at.raw, gid.raw, 16) != 0) continue;
    attr->grh.sgid_index = (uint8_t)i;
    return 0;
  }
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port) {
  struct ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return NULL;
  return ibv_create_ah(pd, &attr);
}
