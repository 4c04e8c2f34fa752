// Memory regions and windows: their pages are shared (memory.c), then the device registers them.
#include "roce.h"

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access) {
  struct roce_mr *own = calloc(1, sizeof *own);
  struct ibv_mr *mr = &own->mr;
  struct roce_message m;
  int error;
  if (own == NULL) return NULL;
  if (roce_share(address, length) != 0) goto failed;
  roce_begin(&m);
  roce_u32(&m, pd->handle);
  roce_u32(&m, access);
  roce_u64(&m, (uintptr_t)address);
  roce_u64(&m, length);
  roce_u64(&m, iova);
  error = roce_call(roce_of(pd->context), ROCE_REG_MR, &m);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = roce_get32(&m);
  mr->lkey = roce_get32(&m);
  mr->rkey = roce_get32(&m);
  roce_end(&m);
  if (error == 0) {
    own->object.kind = ROCE_MR;
    roce_add(roce_of(pd->context), &own->object, mr->handle, mr);
    return mr;
  }
  roce_unshare(address, length);
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
  int moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0, error;
  struct roce_message m;
  if (moves && roce_share(address, length) != 0) return IBV_REREG_MR_ERR_INPUT;
  roce_begin(&m);
  roce_u32(&m, mr->handle);
  roce_u32(&m, (uint32_t)flags);
  roce_u32(&m, pd != NULL ? pd->handle : 0);
  roce_u32(&m, (uint32_t)access);
  roce_u64(&m, (uintptr_t)address);
  roce_u64(&m, length);
  error = roce_call(roce_of(mr->context), ROCE_REREG_MR, &m);
  if (error == 0) {
    mr->lkey = roce_get32(&m);
    mr->rkey = roce_get32(&m);
    if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) mr->pd = pd;
    if (moves) {
      roce_unshare(mr->addr, mr->length);
      mr->addr = address;
      mr->length = length;
    }
  } else if (moves) roce_unshare(address, length);
  roce_end(&m);
  if (error == 0) return 0;
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
  struct roce_mr *own = (struct roce_mr *)mr;
  int error;
  roce_remove(roce_of(mr->context), &own->object);
  error = roce_destroy(mr->context, mr->handle);
  if (error != 0) {
    roce_add(roce_of(mr->context), &own->object, mr->handle, mr);
    return error;
  }
  roce_unshare(mr->addr, mr->length);
  free(own);
  return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
  struct roce_mw *own = calloc(1, sizeof *own);
  struct ibv_mw *mw = &own->mw;
  struct roce_message m;
  int error;
  if (own == NULL) return NULL;
  roce_begin(&m);
  roce_u32(&m, pd->handle);
  roce_u32(&m, type);
  error = roce_call(roce_of(pd->context), ROCE_ALLOC_MW, &m);
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  mw->handle = roce_get32(&m);
  mw->rkey = roce_get32(&m);
  own->number = roce_get32(&m);
  roce_end(&m);
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
