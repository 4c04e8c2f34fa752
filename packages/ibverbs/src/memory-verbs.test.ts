/** Verbs about memory and domains beyond registration: ibv_alloc_null_mr(3), ibv_advise_mr(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3). */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { describe, expect, test } from 'vitest';
import { completions, connect, createQp, good, openPair, openSide, REMOTE_ALL } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, EBUSY, EOPNOTSUPP, ENOENT, EPERM, EFAULT } = constants.errno;

describe('ibv_alloc_null_mr', () => {
  test('gives zeros to send, and discards what arrives', async () => {
    const { a, b, qpA, qpB } = await openPair(v.IBV_QPT_RC);
    const nothing = good(await v.ibv_alloc_null_mr(a.pd));
    const drain = good(await v.ibv_alloc_null_mr(b.pd));
    expect([nothing.addr, nothing.rkey, nothing.pd]).toEqual([0n, 0, a.pd]);
    expect(nothing.length).toBeGreaterThan(2 ** 32);
    a.buffer.fill(5);
    b.buffer.fill(9);
    v.ibv_post_recv(qpB, {
      sg_list: [
        { addr: b.buffer, length: 30, lkey: b.mr.lkey },
        { addr: 0n, length: 50, lkey: drain.lkey },
      ],
    });
    v.ibv_post_send(qpA, {
      opcode: v.IBV_WR_SEND,
      send_flags: v.IBV_SEND_SIGNALED,
      sg_list: [
        { addr: a.buffer, length: 10, lkey: a.mr.lkey },
        { addr: 0x1234, length: 40, lkey: nothing.lkey },
      ],
    });
    expect(await completions(b.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS, byte_len: 50 }]);
    expect(b.buffer.subarray(0, 32)).toEqual(
      Uint8Array.from({ length: 32 }, (_, i) => (i < 10 ? 5 : i < 30 ? 0 : 9)),
    );
    expect(await v.ibv_dereg_mr(nothing)).toBe(0);
  });

  test('is of local use alone', async () => {
    const side = await openSide(new MemoryNetwork(), '10.0.0.1');
    const mr = good(await v.ibv_alloc_null_mr(side.pd));
    const { buffer, pd } = side;
    expect(
      await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_TRANSLATION, pd, buffer, 8, v.IBV_ACCESS_LOCAL_WRITE),
    ).toBe(v.IBV_REREG_MR_ERR_INPUT);
    expect(v.errno).toBe(EINVAL);
    const qp = await createQp(side, v.IBV_QPT_RC);
    await connect(qp, side.gid, qp.qp_num);
    const mw = good(await v.ibv_alloc_mw(pd, v.IBV_MW_TYPE_1));
    const bind_info = { mr, addr: 0n, length: 8, mw_access_flags: v.IBV_ACCESS_REMOTE_WRITE };
    expect(v.ibv_bind_mw(qp, mw, { bind_info })).toBe(EINVAL);
    expect(await v.ibv_dealloc_pd(pd)).toBe(EBUSY);
    const inline = { addr: 0n, length: 8, lkey: mr.lkey };
    const wr = { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_INLINE, sg_list: [inline] };
    expect(v.ibv_post_send(qp, wr)).toBe(EINVAL);
    expect(await v.ibv_alloc_null_mr(null as never)).toBeNull();
    expect(v.lastError()?.attribute).toBe('pd');
  });
});

describe('ibv_advise_mr', () => {
  const advise = async (change: {
    advice?: number;
    flags?: number;
    lkey?: number;
    offset?: bigint;
    length?: number;
    num_sge?: number;
    access?: number;
  }) => {
    const { pd } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const memory = new Uint8Array(20_000).fill(7);
    const mr = good(await v.ibv_reg_mr(pd, memory, 20_000, change.access ?? v.IBV_ACCESS_LOCAL_WRITE));
    const { advice = v.IBV_ADVISE_MR_ADVICE_PREFETCH, flags = 0, lkey = mr.lkey, length = 10_000 } = change;
    const sge = { addr: mr.addr + (change.offset ?? 100n), length, lkey };
    const code = await v.ibv_advise_mr(pd, advice, flags, [sge], change.num_sge ?? 1);
    expect(memory).toEqual(new Uint8Array(20_000).fill(7));
    return code === 0 ? 0 : [code, v.lastError()?.attribute];
  };

  test.each([
    v.IBV_ADVISE_MR_ADVICE_PREFETCH,
    v.IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    v.IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
  ])('%d leaves the bytes as they are', async (advice) => {
    expect(await advise({ advice })).toBe(0);
    expect(await advise({ advice, flags: v.IBV_ADVISE_MR_FLAG_FLUSH, offset: 0n, length: 20_000 })).toBe(0);
    expect(await advise({ advice, length: 0 })).toBe(0);
  });

  test.each([
    ['other advice', { advice: 9 }, EOPNOTSUPP, 'advice'],
    ['other flags', { flags: 2 }, EINVAL, 'flags'],
    ['no element', { num_sge: 0 }, EINVAL, 'num_sge'],
    ['more elements than there are', { num_sge: 2 }, EINVAL, 'num_sge'],
    ['an unknown key', { lkey: 0x1234 }, ENOENT, 'sg_list[0].lkey'],
    ['a range that begins before the region', { offset: -1n }, EFAULT, 'sg_list[0].addr'],
    ['a range that ends behind it', { length: 19_901 }, EFAULT, 'sg_list[0].addr'],
    [
      'writing where the device may not',
      { advice: v.IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, access: v.IBV_ACCESS_REMOTE_READ },
      EPERM,
      'sg_list[0].lkey',
    ],
  ])('refuses %s', async (_, change, errno, attribute) => {
    expect(await advise(change)).toEqual([errno, attribute]);
  });
});

describe('a parent domain', () => {
  test('stands for its protection domain in every call', async () => {
    const network = new MemoryNetwork();
    const a = await openSide(network, '10.0.0.1');
    const b = await openSide(network, '10.0.0.2');
    const td = good(await v.ibv_alloc_td(a.context, {}));
    const parent = good(await v.ibv_alloc_parent_domain(a.context, { pd: a.pd, td }));
    expect([parent.td, parent.context]).toEqual([td, a.context]);
    const qpA = await createQp({ ...a, pd: parent }, v.IBV_QPT_RC);
    const qpB = await createQp(b, v.IBV_QPT_RC);
    expect(qpA.pd).toBe(parent);
    await connect(qpA, b.gid, qpB.qp_num);
    await connect(qpB, a.gid, qpA.qp_num);
    const buffer = new Uint8Array(64).fill(3);
    // A region of either serves queue pairs of either.
    const mr = good(await v.ibv_reg_mr(parent, buffer, 64, REMOTE_ALL));
    for (const [addr, lkey] of [
      [buffer, mr.lkey],
      [a.buffer, a.mr.lkey],
    ] as const) {
      v.ibv_post_recv(qpB, { sg_list: [{ addr: b.buffer, length: 64, lkey: b.mr.lkey }] });
      const wr = { opcode: v.IBV_WR_SEND, send_flags: v.IBV_SEND_SIGNALED };
      expect(v.ibv_post_send(qpA, { ...wr, sg_list: [{ addr, length: 64, lkey }] })).toBe(0);
      expect(await completions(a.cq, 1)).toMatchObject([{ status: v.IBV_WC_SUCCESS }]);
    }
    expect(await v.ibv_destroy_qp(qpA)).toBe(0);
  });

  test('goes when what was made with it is gone, and then the rest', async () => {
    const { context, pd, gid, cq, mr } = await openSide(new MemoryNetwork(), '10.0.0.1');
    const td = good(await v.ibv_alloc_td(context, {}));
    const init = { pd, td, comp_mask: v.IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, pd_context: 'mine' };
    const parent = good(await v.ibv_alloc_parent_domain(context, init));
    expect(parent.pd_context).toBe('mine');
    const cap = { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1 };
    const objects: [() => Promise<unknown>, (object: never) => Promise<number>][] = [
      [() => v.ibv_reg_mr(parent, new Uint8Array(8), 8, 0), v.ibv_dereg_mr],
      [() => v.ibv_alloc_null_mr(parent), v.ibv_dereg_mr],
      [() => v.ibv_alloc_mw(parent, v.IBV_MW_TYPE_2), v.ibv_dealloc_mw],
      [() => v.ibv_create_srq(parent, { attr: { max_wr: 1, max_sge: 1 } }), v.ibv_destroy_srq],
      [
        () => v.ibv_create_ah(parent, { is_global: 1, port_num: 1, grh: { dgid: gid, hop_limit: 1 } }),
        v.ibv_destroy_ah,
      ],
      [
        () => v.ibv_create_qp(parent, { send_cq: cq, recv_cq: cq, cap, qp_type: v.IBV_QPT_RC }),
        v.ibv_destroy_qp,
      ],
      [
        () =>
          v.ibv_create_cq_ex(context, {
            cqe: 1,
            comp_mask: v.IBV_CQ_INIT_ATTR_MASK_PD,
            parent_domain: parent,
          }),
        v.ibv_destroy_cq,
      ],
    ];
    for (const [make, destroy] of objects) {
      const object = good(await make());
      expect(await v.ibv_dealloc_pd(parent)).toBe(EBUSY);
      expect(await destroy(object as never)).toBe(0);
    }
    // A region that changes its domain leaves it.
    expect(await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_PD, parent, null, 0, 0)).toBe(0);
    expect(await v.ibv_dealloc_pd(parent)).toBe(EBUSY);
    expect(await v.ibv_rereg_mr(mr, v.IBV_REREG_MR_CHANGE_PD, pd, null, 0, 0)).toBe(0);
    expect(await v.ibv_dereg_mr(mr)).toBe(0);

    expect(await v.ibv_dealloc_pd(pd)).toBe(EBUSY);
    expect(await v.ibv_dealloc_td(td)).toBe(EBUSY);
    expect(await v.ibv_dealloc_pd(parent)).toBe(0);
    expect(await v.ibv_dealloc_td(td)).toBe(0);
    expect(await v.ibv_dealloc_pd(pd)).toBe(0);
  });

  test('is refused by name', async () => {
    const network = new MemoryNetwork();
    const { context, pd } = await openSide(network, '10.0.0.1');
    const other = await openSide(network, '10.0.0.2');
    const foreign = good(await v.ibv_alloc_td(other.context, {}));
    const refused = async (attr: Partial<v.ibv_parent_domain_init_attr>) => {
      expect(await v.ibv_alloc_parent_domain(context, { pd, ...attr })).toBeNull();
      return [v.errno, v.lastError()?.attribute];
    };
    expect(await refused({ pd: null as never })).toEqual([EINVAL, 'attr.pd']);
    expect(await refused({ pd: other.pd })).toEqual([EINVAL, 'attr.pd']);
    expect(await refused({ td: foreign })).toEqual([EINVAL, 'attr.td']);
    expect(await refused({ td: pd as never })).toEqual([EINVAL, 'attr.td']);
    expect(await refused({ comp_mask: v.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS })).toEqual([
      EOPNOTSUPP,
      'attr.comp_mask',
    ]);
    expect(await refused({ comp_mask: 8 })).toEqual([EINVAL, 'attr.comp_mask']);
    expect(await v.ibv_alloc_td(context, { comp_mask: 1 })).toBeNull();
    expect(v.lastError()?.attribute).toBe('init_attr.comp_mask');
    const cq = { cqe: 1, comp_mask: v.IBV_CQ_INIT_ATTR_MASK_PD, parent_domain: pd };
    expect(await v.ibv_create_cq_ex(context, cq)).toBeNull();
    expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'parent_domain']);
  });
});

test('ibv_query_ece and ibv_set_ece: no options, and none are taken', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  const qp = await createQp(side, v.IBV_QPT_RC);
  const ece: Partial<v.ibv_ece> = {};
  expect(await v.ibv_query_ece(qp, ece)).toBe(0);
  expect(ece).toEqual({ vendor_id: 0, options: 0, comp_mask: 0 });
  expect(await v.ibv_set_ece(qp, ece as v.ibv_ece)).toBe(0);
  for (const [name, value] of [
    ['vendor_id', 0x2c9],
    ['options', 1],
    ['comp_mask', 1],
  ] as const) {
    expect(await v.ibv_set_ece(qp, { vendor_id: 0, options: 0, [name]: value })).toBe(EINVAL);
    expect(v.lastError()?.attribute).toBe(`ece.${name}`);
  }
  expect(await v.ibv_query_ece(null as never, ece)).toBe(EINVAL);
});
