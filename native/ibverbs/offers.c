// Operations of a context that this library does not offer. libibverbs' own header would fail with the same error, and give no reason.
#include "roce.h"

// Called with whatever arguments: none is read.
#define POINTER(operation)                                       \
  static void *no_##operation(void) {                            \
    roce_fails("ibv_" #operation, EOPNOTSUPP, "not offered");     \
    return NULL;                                                 \
  }
#define NUMBER(operation) \
  static int no_##operation(void) { return roce_fails("ibv_" #operation, EOPNOTSUPP, "not offered"); }

#define POINTERS(each) \
  each(open_xrcd) each(open_qp) each(alloc_dm) each(reg_dm_mr) each(alloc_null_mr) each(create_counters) each(create_wq) each(create_rwq_ind_table)
#define NUMBERS(each) each(advise_mr) each(modify_cq) each(modify_qp_rate_limit)
POINTERS(POINTER)
POINTER(create_flow)
NUMBERS(NUMBER)

#define SET(operation) r->verbs.operation = (__typeof__(r->verbs.operation))(void *)no_##operation;
void roce_set_other_ops(struct roce_context *r) {
  POINTERS(SET)
  NUMBERS(SET)
  r->verbs.ibv_create_flow = (__typeof__(r->verbs.ibv_create_flow))(void *)no_create_flow;
}
