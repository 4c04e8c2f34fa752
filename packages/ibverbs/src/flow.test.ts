/** Flows of a raw packet queue pair, and their counters, on a port that the test has in its hands (ibv_create_flow(3), ibv_read_counters(3)). */
import { constants } from 'node:os';
import { MemoryNetwork } from '@node-roce/link';
import { expect, test } from 'vitest';
import { FRAME_ROOM, frameOf, TestPort } from '../../transport/testing/raw-side.ts';
import { completions, createQp, good, openSide, type Side } from '../testing/pair.ts';
import * as v from './index.ts';

const { EINVAL, EBUSY, EOPNOTSUPP } = constants.errno;
const ALL = Array(6).fill(255);

async function setUp() {
  const port = new TestPort();
  const batch = { slab: new Uint8Array(8 * FRAME_ROOM), slots: new Uint32Array(16) };
  const network = new MemoryNetwork();
  const link = (address: string) =>
    Object.assign(network.link(address), { frames: () => ({ batch, open: () => port }) });
  const side = await openSide({ link } as unknown as MemoryNetwork, '10.0.0.1');
  const qp = await createQp(side, v.IBV_QPT_RAW_PACKET);
  return { port, side, qp };
}

async function activate(qp: v.ibv_qp) {
  const init = v.IBV_QP_STATE | v.IBV_QP_PORT;
  expect(await v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_INIT, port_num: 1 }, init)).toBe(0);
  for (const qp_state of [v.IBV_QPS_RTR, v.IBV_QPS_RTS])
    expect(await v.ibv_modify_qp(qp, { qp_state }, v.IBV_QP_STATE)).toBe(0);
}

/** Frames of one byte each arrive. */
async function arrive({ buffer, mr, cq }: Side, qp: v.ibv_qp, port: TestPort, ...bytes: number[]) {
  port.arrived.push(...bytes.map((byte) => frameOf(byte)));
  for (const _ of bytes) v.ibv_post_recv(qp, { sg_list: [{ addr: buffer, length: 100, lkey: mr.lkey }] });
  await completions(cq, bytes.length);
}

const toMac = (byte: number): v.ibv_flow_spec => ({
  type: v.IBV_FLOW_SPEC_ETH,
  val: { dst_mac: Array(6).fill(byte) },
  mask: { dst_mac: ALL },
});
const normal = (...specs: v.ibv_flow_spec[]): v.ibv_flow_attr => ({ type: v.IBV_FLOW_ATTR_NORMAL, specs });

test('the port gets the rules of all flows; after the last, nothing', async () => {
  const { port, qp } = await setUp();
  await activate(qp);
  expect(port.rules).toEqual([[]]);
  const [one, two] = await Promise.all([
    v.ibv_create_flow(qp, normal(toMac(1))),
    v.ibv_create_flow(qp, { type: v.IBV_FLOW_ATTR_MC_DEFAULT }),
  ]);
  expect(port.rules).toHaveLength(2);
  expect(port.rules[0]).toMatchObject([{ offset: 0, value: frameOf(1, 6) }]);
  expect(await v.ibv_destroy_flow(good(one))).toBe(0);
  expect(port.rules).toMatchObject([[{ offset: 0, value: Uint8Array.of(1), mask: Uint8Array.of(1) }]]);
  const all = good(await v.ibv_create_flow(qp, { type: v.IBV_FLOW_ATTR_ALL_DEFAULT, port: 1, priority: 9 }));
  expect(port.rules[1]).toEqual([]);
  // A RESET keeps them.
  await v.ibv_modify_qp(qp, { qp_state: v.IBV_QPS_RESET }, v.IBV_QP_STATE);
  expect(port.rules).toEqual([]);
  await activate(qp);
  expect(port.rules).toHaveLength(2);
  for (const flow of [good(two), all]) expect(await v.ibv_destroy_flow(flow)).toBe(0);
  expect(port.rules).toEqual([]);
  expect(await v.ibv_destroy_flow(all)).toBe(EINVAL);
  expect(v.lastError()?.attribute).toBe('flow_id');
});

test('counters add up what their flows take in, also those that are destroyed', async () => {
  const { port, side, qp } = await setUp();
  await activate(qp);
  const counters = good(await v.ibv_create_counters(side.context, {}));
  const attach = (counter_desc: number, index: number) =>
    v.ibv_attach_counters_point_flow(counters, { counter_desc, index }, null);
  expect(await attach(v.IBV_COUNTER_PACKETS, 0)).toBe(0);
  expect(await attach(v.IBV_COUNTER_BYTES, 2)).toBe(0);
  const read = async (n = 3) => {
    const values: bigint[] = [];
    expect(await v.ibv_read_counters(counters, values, n, v.IBV_READ_COUNTERS_ATTR_PREFER_CACHED)).toBe(0);
    return values;
  };
  expect(await read()).toEqual([0n, 0n, 0n]);
  const count = { type: v.IBV_FLOW_SPEC_ACTION_COUNT, counters } as const;
  const one = good(await v.ibv_create_flow(qp, normal(toMac(1), count)));
  await arrive(side, qp, port, 1, 2, 1);
  expect(await read()).toEqual([2n, 0n, 120n]);
  // Another flow of the queue pair, which is not counted, changes the filter.
  const two = good(await v.ibv_create_flow(qp, normal(toMac(2))));
  await arrive(side, qp, port, 1, 2);
  expect(await read(1)).toEqual([3n]);
  const three = good(await v.ibv_create_flow(qp, normal(toMac(3), count)));
  await arrive(side, qp, port, 1, 2, 3);
  expect(await read()).toEqual([5n, 0n, 300n]);
  expect(await attach(v.IBV_COUNTER_BYTES, 1)).toBe(EBUSY);
  expect(await v.ibv_destroy_counters(counters)).toBe(EBUSY);
  expect(await v.ibv_destroy_flow(one)).toBe(0);
  await arrive(side, qp, port, 1, 2, 3);
  expect(await read()).toEqual([6n, 0n, 360n]);
  expect(await v.ibv_destroy_flow(three)).toBe(0);
  await arrive(side, qp, port, 3);
  expect(await read()).toEqual([6n, 0n, 360n]);
  expect(await v.ibv_destroy_flow(two)).toBe(0);
  expect(await v.ibv_destroy_counters(counters)).toBe(0);
});

test('a queue pair with flows is not destroyed, and one that is being destroyed gets none', async () => {
  const { side, qp } = await setUp();
  await activate(qp);
  const counters = good(await v.ibv_create_counters(side.context, {}));
  const count = { type: v.IBV_FLOW_SPEC_ACTION_COUNT, counters } as const;
  const creating = v.ibv_create_flow(qp, normal(count));
  // The flow is on its way; it comes first.
  expect(await v.ibv_destroy_qp(qp)).toBe(EBUSY);
  const flow = good(await creating);
  expect(await v.ibv_destroy_qp(qp)).toBe(EBUSY);
  expect(await v.ibv_read_counters(counters, [], 0, 0)).toBe(0);
  const ending = v.ibv_destroy_flow(flow);
  const [destroyed, late] = await Promise.all([v.ibv_destroy_qp(qp), v.ibv_create_flow(qp, normal(count))]);
  expect([await ending, destroyed, late]).toEqual([0, 0, null]);
  expect(await v.ibv_destroy_counters(counters)).toBe(0);
});

test('refuses wrong arguments by name, and leaves no flow', async () => {
  const { port, side, qp } = await setUp();
  await activate(qp);
  const counters = good(await v.ibv_create_counters(side.context, {}));
  const count = { type: v.IBV_FLOW_SPEC_ACTION_COUNT, counters } as const;
  const rc = await createQp(side, v.IBV_QPT_RC);
  for (const [attr, errno, attribute, of = qp] of [
    [{ type: v.IBV_FLOW_ATTR_SNIFFER }, EOPNOTSUPP, 'type'],
    [{ ...normal(), comp_mask: 1 }, EINVAL, 'comp_mask'],
    [{ ...normal(), port: 2 }, EINVAL, 'port'],
    [{ ...normal(), flags: v.IBV_FLOW_ATTR_FLAGS_EGRESS }, EOPNOTSUPP, 'flags'],
    [{ ...normal(), num_of_specs: 1 }, EINVAL, 'num_of_specs'],
    [{ ...normal(toMac(1)), type: v.IBV_FLOW_ATTR_MC_DEFAULT }, EINVAL, 'specs'],
    [normal(count, count), EINVAL, 'specs[1].type'],
    [normal({ ...count, counters: null as never }), EINVAL, 'specs[0].counters'],
    [normal(), EOPNOTSUPP, 'qp', rc],
    [null as never, EINVAL, 'flow_attr'],
  ] as [v.ibv_flow_attr, number, string, v.ibv_qp?][]) {
    expect(await v.ibv_create_flow(of, attr)).toBeNull();
    expect([v.errno, v.lastError()?.attribute]).toEqual([errno, attribute]);
  }
  expect(port.rules).toEqual([[]]);
  const refused = async (...args: Parameters<typeof v.ibv_attach_counters_point_flow>) => [
    await v.ibv_attach_counters_point_flow(...args),
    v.lastError()?.attribute,
  ];
  const flow = good(await v.ibv_create_flow(qp, normal()));
  const attr = { counter_desc: v.IBV_COUNTER_BYTES, index: 0 };
  expect(await refused(counters, attr, flow)).toEqual([EOPNOTSUPP, 'flow']);
  expect(await refused(counters, { ...attr, counter_desc: 7 }, null)).toEqual([
    EOPNOTSUPP,
    'attr.counter_desc',
  ]);
  expect(await refused(counters, { ...attr, index: -1 }, null)).toEqual([EINVAL, 'attr.index']);
  expect(await refused(counters, { ...attr, comp_mask: 1 }, null)).toEqual([EINVAL, 'attr.comp_mask']);
  expect(await v.ibv_read_counters(counters, [], 1, 8)).toBe(EINVAL);
  expect(await v.ibv_read_counters(counters, [], -1, 0)).toBe(EINVAL);
  expect(await v.ibv_create_counters(side.context, { comp_mask: 1 })).toBeNull();
});
