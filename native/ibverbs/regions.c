// Memory regions and windows: their pages are shared (memory.c), then the device registers them.
#include "roce.h"

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access) {
  struct roce_mr *own = calloc(1, sizeof *own);
  struct ibv_mr *mr = &own->mr;
  struct roce_reg_mr_request request = {.pd = pd->handle, .access = access, .address = (uintptr_t)address, .length = length, .iova = iova};
  struct roce_reg_mr_reply reply;
  int error;
  if (own == NULL) return NULL;
  own->kind = ROCE_MEMORY_EITHER;
  if (roce_share(roce_of(pd->context), address, length, access, &own->kind) != 0) goto failed;
  request.kind = own->kind;
  error = roce_ask_reg_mr(roce_of(pd->context), &request, &reply);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  own->access = access;
  mr->handle = reply.handle;
  mr->lkey = reply.lkey;
  mr->rkey = reply.rkey;
  if (error == 0) {
    if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) roce_mark_defined(address, length);
    own->object.kind = ROCE_MR;
    roce_add(roce_of(pd->context), &own->object, mr->handle, mr);
    return mr;
  }
  roce_unshare(roce_of(pd->context), address, length, own->kind);
  errno = error;
failed:
  error = errno;
  free(own);
  errno = error;
  return NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access) {
  return register_memory(pd, address, length, (uintptr_t)address, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, int access) {
  return register_memory(pd, address, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access) {
  return register_memory(pd, address, length, iova, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access) {
  struct roce_context *r = roce_of(mr->context);
  struct roce_mr *own = (struct roce_mr *)mr;
  int moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0, error;
  int changes = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  unsigned allowed = changes ? (unsigned)access : own->access;
  // Other access to the same pages: they are shared once more, as that looks whether the program can write them. An imported region
  // has none.
  int shares = moves || (changes && mr->length > 0);
  void *next = moves ? address : mr->addr;
  size_t next_length = moves ? length : mr->length;
  // The device keeps the way that it has, unless the range is another.
  uint32_t kind = moves ? ROCE_MEMORY_EITHER : own->kind;
  struct roce_rereg_mr_request request = {
      .handle = mr->handle,
      .flags = (uint32_t)flags,
      .pd = pd != NULL ? pd->handle : 0,
      .access = (uint32_t)access,
      .address = (uintptr_t)address,
      .length = length,
  };
  struct roce_rereg_mr_reply reply;
  if (shares && roce_share(r, next, next_length, allowed, &kind) != 0) return IBV_REREG_MR_ERR_INPUT;
  request.kind = kind;
  error = roce_ask_rereg_mr(r, &request, &reply);
  if (error == 0) {
    mr->lkey = reply.lkey;
    mr->rkey = reply.rkey;
    if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) mr->pd = pd;
    own->access = allowed;
    if (shares) {
      roce_unshare(r, mr->addr, mr->length, own->kind);
      own->kind = kind;
      mr->addr = next;
      mr->length = next_length;
    }
  } else if (shares) roce_unshare(r, next, next_length, kind);
  if (error == 0) return 0;
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
  struct roce_mr *own = (struct roce_mr *)mr;
  int error;
  error = roce_destroy(mr->context, mr->handle);
  if (error != 0) return error;
  roce_remove(roce_of(mr->context), &own->object);
  roce_unshare(roce_of(mr->context), mr->addr, mr->length, own->kind);
  free(own);
  return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
  struct roce_mw *own = calloc(1, sizeof *own);
  struct ibv_mw *mw = &own->mw;
  const struct roce_alloc_mw_request request = {.pd = pd->handle, .type = type};
  struct roce_alloc_mw_reply reply;
  int error;
  if (own == NULL) return NULL;
  error = roce_ask_alloc_mw(roce_of(pd->context), &request, &reply);
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  mw->handle = reply.handle;
  mw->rkey = reply.rkey;
  own->number = reply.number;
  if (error == 0) return mw;
  free(own);
  errno = error;
  return NULL;
}

static int dealloc_mw(struct ibv_mw *mw) {
  int error = roce_destroy(mw->context, mw->handle);
  if (error == 0) free(mw);
  return error;
}

void roce_set_memory_ops(struct roce_context *r) {
  r->verbs.context.ops.alloc_mw = alloc_mw;
  r->verbs.context.ops.dealloc_mw = dealloc_mw;
}
