// Protection domains, thread domains and parent domains; and objects of this process that are imported.
#include "roce.h"

static struct roce_pd *own(struct ibv_pd *pd) { return (struct roce_pd *)pd; }

static void add(unsigned *users, int by) { __atomic_add_fetch(users, (unsigned)by, __ATOMIC_SEQ_CST); }
static unsigned count(unsigned *users) { return __atomic_load_n(users, __ATOMIC_SEQ_CST); }

static struct roce_pd *new_pd(struct ibv_context *context, uint32_t handle) {
  struct roce_pd *pd = calloc(1, sizeof *pd);
  if (pd == NULL) return NULL;
  pd->pd.context = context;
  pd->pd.handle = handle;
  pd->object.kind = ROCE_PD;
  return pd;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
  struct roce_pd *pd = new_pd(context, 0);
  struct roce_alloc_pd_reply reply;
  int error;
  if (pd == NULL) return NULL;
  error = roce_ask_alloc_pd(roce_of(context), &reply);
  if (error == 0) {
    pd->pd.handle = reply.handle;
    roce_add(roce_of(context), &pd->object, pd->pd.handle, pd);
    return &pd->pd;
  }
  free(pd);
  errno = error;
  return NULL;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
  struct roce_pd *it = own(pd);
  int error;
  if (it->protection != NULL) {
    add(&it->protection->users, -1);
    if (it->thread != NULL) add(&it->thread->users, -1);
    free(it);
    return 0;
  }
  if (count(&it->users) > 0) return FAILS(EBUSY, "parent domains stand on it");
  error = roce_destroy(pd->context, pd->handle);
  if (error != 0) return error;
  roce_remove(roce_of(pd->context), &it->object);
  free(it);
  return 0;
}

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr) {
  struct roce_td *td;
  if (attr->comp_mask != 0) {
    roce_fails("ibv_alloc_td", EINVAL, "attr.comp_mask");
    return NULL;
  }
  td = calloc(1, sizeof *td);
  if (td == NULL) return NULL;
  td->td.context = context;
  return &td->td;
}

static int dealloc_td(struct ibv_td *td) {
  struct roce_td *it = (struct roce_td *)td;
  if (count(&it->users) > 0) return roce_fails("ibv_dealloc_td", EBUSY, "parent domains have it");
  free(it);
  return 0;
}

// The protection domain under another pointer. Its allocators are never called: all memory of queues is the device's.
static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr) {
  uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  struct roce_pd *parent, *protection = attr->pd != NULL ? own(attr->pd) : NULL;
  if (protection == NULL || protection->protection != NULL || (attr->comp_mask & ~known) != 0 ||
      ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0 && (attr->alloc == NULL || attr->free == NULL))) {
    roce_fails("ibv_alloc_parent_domain", EINVAL, "attr: no protection domain, one that is a parent domain, unknown bits, or allocators that are NULL");
    return NULL;
  }
  parent = new_pd(context, attr->pd->handle);
  if (parent == NULL) return NULL;
  parent->protection = protection;
  parent->thread = (struct roce_td *)attr->td;
  add(&protection->users, 1);
  if (parent->thread != NULL) add(&parent->thread->users, 1);
  return &parent->pd;
}

// The context itself, which is closed once more often. Contexts of other processes cannot be had: the memory that a context
// shares with the device is that of its process.
struct ibv_context *ibv_import_device(int cmd_fd) {
  struct roce_context *r = roce_import(cmd_fd);
  if (r == NULL) {
    FAILS(EOPNOTSUPP, "cmd_fd is of no context of this process");
    return NULL;
  }
  close(cmd_fd);
  return &r->verbs.context;
}

static void nothing(void *it, void *to) { (void)it, (void)to; }

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle) {
  struct roce_pd *pd;
  int error = roce_with(roce_of(context), ROCE_PD, handle, nothing, NULL);
  if (error != 0) {
    errno = error;
    return NULL;
  }
  pd = new_pd(context, handle);
  return pd != NULL ? &pd->pd : NULL;
}

void ibv_unimport_pd(struct ibv_pd *pd) { free(own(pd)); }

static void copy_region(void *it, void *to) { *(struct ibv_mr *)to = *(const struct ibv_mr *)it; }

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) {
  struct roce_mr *mr = calloc(1, sizeof *mr);
  int error;
  if (mr == NULL) return NULL;
  error = roce_with(roce_of(pd->context), ROCE_MR, handle, copy_region, &mr->mr);
  if (error == 0 && mr->mr.pd->handle != pd->handle) error = FAILS(EINVAL, "the region is of another protection domain");
  if (error != 0) {
    free(mr);
    errno = error;
    return NULL;
  }
  // As ibv_import_mr(3) has it: who imports knows keys, and no address.
  mr->mr.pd = pd;
  mr->mr.addr = NULL;
  mr->mr.length = 0;
  return &mr->mr;
}

void ibv_unimport_mr(struct ibv_mr *mr) { free((struct roce_mr *)mr); }

void roce_set_domain_ops(struct roce_context *r) {
  r->verbs.alloc_td = alloc_td;
  r->verbs.dealloc_td = dealloc_td;
  r->verbs.alloc_parent_domain = alloc_parent_domain;
}
