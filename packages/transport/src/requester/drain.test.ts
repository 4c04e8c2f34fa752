/**
 * SQD finishes the requests that were started and no others (IBTA vol 1 §10.3.1.5): a request is started with its first packet.
 * Judged by the packets on the wire.
 */
import { bthOpcode, bthPsn, createRandom, opcodeInfo, psnAdd, psnDiff } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { addressOf, Pair, QKEY, type WorkInit } from '../../testing/pair.ts';
import { Access } from '../index.ts';

const FULL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
const MTU = 1024;
const BUFFER = 32 * MTU;
const FIRST_PSN = 0xff_ffe0;
const REQUESTS = 24;

type Type = 'RC' | 'UC' | 'UD';
const OPCODES = {
  RC: ['SEND', 'RDMA_WRITE', 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD'],
  UC: ['SEND', 'RDMA_WRITE'],
  UD: ['SEND'],
} as const;

interface Planned extends WorkInit {
  wrId: number;
  /** Its first PSN. */
  psn: number;
}

function setUp(type: Type, seed: number) {
  const random = createRandom(seed).unit;
  const options = { type, mtu: MTU, psn: [FIRST_PSN, 0x100] as [number, number], attr: { maxRdAtomic: 2 } };
  const pair = new Pair({ ...options, attr: { ...options.attr, timeout: 10 } });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(BUFFER), FULL);
  const remote = right.register(new ArrayBuffer(BUFFER), FULL);
  const ah = left.adapter.createAh(left.pd, addressOf(2));
  const plan: Planned[] = [];
  let psn = FIRST_PSN;
  for (let wrId = 0; wrId < REQUESTS; wrId++) {
    const opcode = OPCODES[type][Math.floor(random() * OPCODES[type].length)];
    const most = type === 'UD' ? MTU : BUFFER - 40;
    const length = opcode === 'ATOMIC_FETCH_AND_ADD' ? 8 : Math.floor(random() ** 2 * most);
    const datagram = type === 'UD' ? { datagram: { ah, qpn: right.qp.qpn, qkey: QKEY } } : {};
    plan.push({ wrId, opcode, sge: [{ mr: local, length }], remote, psn, ...datagram });
    psn = psnAdd(psn, Math.max(1, Math.ceil(length / MTU)));
  }
  const loss = type === 'RC' ? 0.02 : 0;
  pair.fault = (packet) => (random() < loss ? [] : [{ packet, delay: 0 }]);
  const postReceives = () => {
    for (let i = 0; i < REQUESTS; i++) right.postRecv(i, [{ mr: remote, length: BUFFER }]);
  };
  // Some are met by an RNR NAK first.
  if (random() < 0.7) postReceives();
  const late = right.rq.used === 0;
  return { pair, random, plan, postReceives: late ? postReceives : () => {} };
}

/** One past the last PSN of requests that the left has sent so far. */
function sentUpTo({ sent, left }: Pair): number {
  let next = FIRST_PSN;
  for (const { from, packet } of sent) {
    if (from !== left || !opcodeInfo(bthOpcode(packet, 0))!.isRequest) continue;
    const psn = bthPsn(packet, 0);
    if (psnDiff(psn, next) >= 0) next = psnAdd(psn, 1);
  }
  return next;
}

const drain = ({ left }: Pair) =>
  left.adapter.modifyQp(left.qp.qpn, { qpState: 'SQD', enSqdAsyncNotify: true });
const resume = ({ left }: Pair) => left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS' });

describe.each<Type>(['RC', 'UC', 'UD'])('sqdFinishesWhatWasStarted: %s', (type) => {
  test.each(Array.from({ length: 40 }, (_, i) => i + 1))('seed %i', (seed) => {
    const { pair, random, plan, postReceives } = setUp(type, seed);
    const { left } = pair;
    const half = Math.floor(random() * REQUESTS);
    for (const request of plan.slice(0, half)) left.post(request);
    if (type === 'RC' && random() < 0.5) {
      left.adapter.modifyQp(left.qp.qpn, { rateLimit: 1_000_000 });
    }
    pair.run(Math.floor(random() * 400));
    const next = sentUpTo(pair);
    drain(pair);
    for (const request of plan.slice(half)) left.post(request);
    postReceives();
    pair.run(10_000_000);

    const started = plan.slice(0, half).filter(({ psn }) => psnDiff(psn, next) < 0);
    const statuses = (requests: Planned[]) => requests.map(({ wrId }) => [wrId, 'SUCCESS']);
    const done = () =>
      left
        .poll()
        .filter(({ qpn }) => qpn === left.qp.qpn)
        .map(({ wrId, status }) => [wrId, status]);
    expect(done()).toEqual(statuses(started));
    const end = plan[started.length]?.psn;
    if (end !== undefined) expect(psnDiff(sentUpTo(pair), end)).toBeLessThanOrEqual(0);
    expect(left.events).toEqual([{ type: 'SQ_DRAINED', qpn: left.qp.qpn }]);
    expect(left.adapter.queryQp(left.qp.qpn).attr).toMatchObject({ qpState: 'SQD', sqDraining: false });

    resume(pair);
    pair.run(10_000_000);
    expect(done()).toEqual(statuses(plan.slice(started.length)));
    expect(left.events).toHaveLength(1);
  });
});

test('sqdFinishesWhatWasStarted: a READ that may not go yet is not started; its fence is no trap', () => {
  const pair = new Pair({ attr: { maxRdAtomic: 1 } });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(BUFFER), FULL);
  const remote = right.register(new ArrayBuffer(BUFFER), FULL);
  const read = (wrId: number, flags: number) =>
    left.post({ wrId, opcode: 'RDMA_READ', sge: [{ mr: local, length: 8 }], remote, flags });
  read(1, 2);
  read(2, 2);
  pair.run(5);
  drain(pair);
  pair.run();
  expect(left.poll().map(({ wrId }) => wrId)).toEqual([1]);
  expect(left.events).toHaveLength(1);
  resume(pair);
  read(3, 3);
  pair.run();
  expect(left.poll().map(({ wrId }) => wrId)).toEqual([2, 3]);
});

test('sqdFinishesWhatWasStarted: a request that is wrong fails when its turn comes', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(BUFFER), FULL);
  const remote = right.register(new ArrayBuffer(BUFFER), FULL);
  left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 3000 }], remote });
  left.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [{ mr: { ...local, lkey: 1 }, length: 8 }], remote });
  pair.run(5);
  drain(pair);
  pair.run();
  expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
  expect(left.events).toEqual([{ type: 'SQ_DRAINED', qpn: left.qp.qpn }]);
  resume(pair);
  pair.run();
  expect(left.poll()).toMatchObject([{ wrId: 2, status: 'LOC_PROT_ERR' }]);
});

test.each<Type>(['RC', 'UC', 'UD'])('each SQD of %s is reported, once', (type) => {
  const pair = new Pair({ type });
  const { left } = pair;
  const drained = { type: 'SQ_DRAINED', qpn: left.qp.qpn };
  drain(pair);
  pair.run();
  expect(left.events).toEqual([drained]);
  resume(pair);
  drain(pair);
  pair.run();
  expect(left.events).toEqual([drained, drained]);
});

test('sqdFinishesWhatWasStarted: the other direction goes on', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(BUFFER), FULL);
  const remote = right.register(new ArrayBuffer(BUFFER), FULL);
  drain(pair);
  left.postRecv(1, [{ mr: local, length: 64 }]);
  right.post({ wrId: 2, opcode: 'SEND', sge: [{ mr: remote, length: 64 }] });
  right.post({ wrId: 3, opcode: 'RDMA_READ', sge: [{ mr: remote, length: 5000 }], remote: local });
  pair.run();
  expect(right.poll()).toMatchObject([
    { wrId: 2, status: 'SUCCESS' },
    { wrId: 3, status: 'SUCCESS' },
  ]);
  expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
});
