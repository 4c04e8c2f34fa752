/** Queue pairs and the calls that they refuse: the checks of test_qp, and the wrong flows of test_qpex. */
import { constants } from 'node:os';
import * as v from '@node-roce/ibverbs';
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import {
  createPlayers,
  deviceAttr,
  IB_PORT,
  made,
  ok,
  openContext,
  Player,
  toInit,
  toRtr,
  toRts,
} from './players.ts';

const { EINVAL, ENOMEM, EPERM } = constants.errno;

const TYPES = [
  ['RC', v.IBV_QPT_RC, v.IBV_QPS_INIT],
  ['UC', v.IBV_QPT_UC, v.IBV_QPS_INIT],
  ['UD', v.IBV_QPT_UD, v.IBV_QPS_RTS],
] as const;

const { between } = createRandom(1);
const random = (most: number) => between(1, most);

/** Sizes at random within the device, as those tests draw them. */
async function setUp(qp_type: number, change: Partial<v.ibv_qp_cap> = {}) {
  const context = await openContext();
  const attr = await deviceAttr(context);
  const pd = made(await v.ibv_alloc_pd(context));
  const cq = made(await v.ibv_create_cq(context, 100, null, null, 0));
  const cap = {
    max_send_wr: random(Math.min(attr.max_qp_wr / 8, 64)),
    max_recv_wr: random(Math.min(attr.max_qp_wr / 8, 64)),
    max_send_sge: random(Math.min(attr.max_sge, 16)),
    max_recv_sge: random(Math.min(attr.max_sge, 16)),
    max_inline_data: random(64),
    ...change,
  };
  const asked = { ...cap };
  const qp = await v.ibv_create_qp(pd, { send_cq: cq, recv_cq: cq, cap, qp_type, sq_sig_all: random(2) - 1 });
  return { qp, asked, cq, pd, context };
}

const attr: v.ibv_qp_attr = {
  port_num: IB_PORT,
  pkey_index: 0,
  qkey: 0x123,
  qp_access_flags: 0,
  sq_psn: 0x45,
};

async function queried(qp: v.ibv_qp, mask: number) {
  const [found, init] = [{} as v.ibv_qp_attr, {} as v.ibv_qp_init_attr];
  await ok(v.ibv_query_qp(qp, found, mask, init));
  return { found, init };
}

describe.each(TYPES)('%s', (_name, type, after) => {
  test('is created in RESET', async () => {
    expect(made((await setUp(type)).qp).state).toBe(v.IBV_QPS_RESET);
  });

  test('is created and taken to the state of pyverbs', async () => {
    const qp = made((await setUp(type)).qp);
    await toInit(qp, attr);
    if (after === v.IBV_QPS_RTS) {
      await toRtr(qp, attr);
      await toRts(qp, attr);
    }
    expect(qp.state).toBe(after);
  });

  test('a query gives at least the sizes that were asked for', async () => {
    const { qp, asked } = await setUp(type);
    const { found, init } = await queried(made(qp), v.IBV_QP_STATE | v.IBV_QP_CAP);
    expect(found.qp_state).toBe(v.IBV_QPS_RESET);
    for (const name of Object.keys(asked) as (keyof typeof asked)[])
      expect(init.cap[name], name).toBeGreaterThanOrEqual(asked[name]);
  });
});

describe('raw packets', () => {
  test('are offered to those who have CAP_NET_RAW', async () => {
    const { qp, asked } = await setUp(v.IBV_QPT_RAW_PACKET);
    if (process.getuid?.() !== 0) {
      expect(qp === null ? v.errno : EPERM).toBe(EPERM);
      return;
    }
    const raw = made(qp);
    await ok(
      v.ibv_modify_qp(raw, { qp_state: v.IBV_QPS_INIT, port_num: IB_PORT }, v.IBV_QP_STATE | v.IBV_QP_PORT),
    );
    await ok(v.ibv_modify_qp(raw, { qp_state: v.IBV_QPS_RTR }, v.IBV_QP_STATE));
    await ok(v.ibv_modify_qp(raw, { qp_state: v.IBV_QPS_RTS }, v.IBV_QP_STATE));
    const { found, init } = await queried(raw, v.IBV_QP_STATE | v.IBV_QP_CAP);
    expect(found.qp_state).toBe(v.IBV_QPS_RTS);
    for (const name of Object.keys(asked) as (keyof typeof asked)[])
      expect(init.cap[name], name).toBeGreaterThanOrEqual(asked[name]);
  });
});

describe('refuses sizes beyond the device', () => {
  test.each<[keyof v.ibv_qp_cap, number]>([
    ['max_send_wr', 0xffff_ffff],
    ['max_send_sge', 0xffff],
    ['max_recv_sge', 0xffff],
    ['max_recv_wr', 0xffff_ffff],
    ['max_inline_data', 0xffff_ffff],
  ])('%s', async (name, value) => {
    expect((await setUp(v.IBV_QPT_UD, { [name]: value })).qp).toBeNull();
    expect(v.errno).toBe(EINVAL);
  });
});

test('UD: Q_Key and PSN are what was set; RESET', async () => {
  const qp = made((await setUp(v.IBV_QPT_UD)).qp);
  await toInit(qp, attr);
  expect((await queried(qp, v.IBV_QP_QKEY)).found.qkey).toBe(0x123);
  await toRtr(qp, attr);
  await toRts(qp, attr);
  expect((await queried(qp, v.IBV_QP_SQ_PSN)).found.sq_psn).toBe(0x45);
  await ok(v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_RESET }, v.IBV_QP_STATE));
  expect(qp.state).toBe(v.IBV_QPS_RESET);
});

test('UD: a privileged Q_Key can be set', async () => {
  const qp = made((await setUp(v.IBV_QPT_UD)).qp);
  await toInit(qp, { ...attr, qkey: 0x8000_0000 });
  expect((await queried(qp, v.IBV_QP_QKEY)).found.qkey).toBe(0x8000_0000);
});

test('RC: max_rd_atomic and max_dest_rd_atomic are at least what was asked for', async () => {
  const { server } = await createPlayers({ maxRdAtomic: 12 });
  const { found } = await queried(server.qp, v.IBV_QP_MAX_QP_RD_ATOMIC | v.IBV_QP_MAX_DEST_RD_ATOMIC);
  expect(found.max_rd_atomic).toBeGreaterThanOrEqual(12);
  expect(found.max_dest_rd_atomic).toBeGreaterThanOrEqual(12);
});

describe('posting', () => {
  const reset = (player: Player) =>
    ok(v.ibv_modify_qp(player.qp, { qp_state: v.IBV_QPS_RESET }, v.IBV_QP_STATE));

  test('a receive in RESET is refused', async () => {
    const { client } = await createPlayers({ type: v.IBV_QPT_UD });
    await reset(client);
    expect(v.ibv_post_recv(client.qp, client.recvWr())).toBe(EINVAL);
  });

  test('a send in RESET, INIT and RTR is refused', async () => {
    const { client } = await createPlayers({ type: v.IBV_QPT_UD });
    await reset(client);
    const refused = () => expect(client.post(v.IBV_WR_SEND)).rejects.toThrow('EINVAL');
    await refused();
    await toInit(client.qp, client.attr(0));
    await refused();
    await toRtr(client.qp, client.attr(0));
    await refused();
    await toRts(client.qp, client.attr(0));
    await client.post(v.IBV_WR_SEND);
  });

  test('more receives than the queue has is refused with ENOMEM', async () => {
    const { client } = await createPlayers({ type: v.IBV_QPT_UD });
    const { max_recv_wr } = (await queried(client.qp, v.IBV_QP_CAP)).init.cap;
    for (let i = 0; i < max_recv_wr!; i++) await client.postRecv();
    expect(v.ibv_post_recv(client.qp, client.recvWr())).toBe(ENOMEM);
  });

  test('more elements than the queue takes is refused', async () => {
    const { client } = await createPlayers({ type: v.IBV_QPT_UD });
    const { max_recv_sge } = (await queried(client.qp, v.IBV_QP_CAP)).init.cap;
    const [sge] = client.recvWr().sg_list!;
    const sg_list = new Array(max_recv_sge! + 1).fill({ ...sge!, length: 1 });
    expect(v.ibv_post_recv(client.qp, { wr_id: 1n, sg_list })).toBe(EINVAL);
  });
});

test('contexts share a device, and nothing else', async () => {
  const [a, b] = [await Player.create({}), await Player.create({})];
  const init = { recv_cq: b.cq, qp_type: v.IBV_QPT_RC, cap: {} };
  expect(await v.ibv_create_qp(b.pd, { ...init, send_cq: a.cq })).toBeNull();
  expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'send_cq']);
  const attr = { max_wr: 4, max_sge: 1 };
  const srq = made(await v.ibv_create_srq(a.pd, { attr }));
  expect(await v.ibv_create_qp(b.pd, { ...init, send_cq: b.cq, srq })).toBeNull();
  expect([v.errno, v.lastError()?.attribute]).toEqual([EINVAL, 'srq']);
});
