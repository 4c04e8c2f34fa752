/** A program's thread may write anything into the rings that it shares with the engine: no call takes long, and other queues go on. */
import { describe, expect, test } from 'vitest';
import { CONTROL_WORDS, Control, type Ring, SendWqe, Sge } from '../src/index.ts';
import { Pair } from '../testing/pair.ts';

/** A loop over a count that can't be takes many seconds of the processor. */
const SOON_US = 4e6;

function soon<T>(call: () => T): T {
  const before = process.cpuUsage();
  const result = call();
  const { user, system } = process.cpuUsage(before);
  expect(user + system).toBeLessThan(SOON_US);
  return result;
}

const jump = (ring: Ring, by: number) =>
  Atomics.add(new Int32Array(ring.shape.buffer, 0, CONTROL_WORDS), Control.PRODUCER, by | 0);

function setUp() {
  const pair = new Pair({ attr: {} });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(1 << 16));
  const remote = right.register(new ArrayBuffer(1 << 16));
  const write = (wrId: number, length = 100) =>
    left.post({ wrId, opcode: 'RDMA_WRITE', sge: [{ mr: local, length }], remote });
  return { pair, left, right, remote, write };
}

describe.each([
  ['far ahead', 0x4000_0000],
  ['past the sign', 0x9000_0000],
  ['back', -1000],
])('a producer that jumped %s', (_name, by) => {
  test('of a send queue: nothing is executed, and the queue pair can be ended', () => {
    const { pair, left, write } = setUp();
    write(1);
    pair.run();
    expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
    const sent = pair.sent.length;
    jump(left.sq, by);
    write(2);
    soon(() => pair.run());
    expect(pair.sent).toHaveLength(sent);
    soon(() => left.adapter.modifyQp(left.qp.qpn, { qpState: 'ERR' }));
    expect(left.poll()).toEqual([]);
    soon(() => left.adapter.destroyQp(left.qp.qpn));
  });

  test('of a receive queue: there is no receive, and the queue pair can be ended', () => {
    const { pair, left, right, remote } = setUp();
    jump(right.rq, by);
    right.postRecv(1, [{ mr: remote, length: 100 }]);
    left.post({ wrId: 1, opcode: 'SEND' });
    soon(() => pair.run(10_000));
    expect(right.poll()).toEqual([]);
    soon(() => right.adapter.modifyQp(right.qp.qpn, { qpState: 'ERR' }));
    expect(right.poll()).toEqual([]);
    soon(() => right.adapter.destroyQp(right.qp.qpn));
  });

  test('of the doorbells: what rang is found all the same', () => {
    const { pair, left, write } = setUp();
    write(1);
    jump(left.doorbells, by);
    soon(() => pair.run());
    expect(left.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS' }]);
    write(2);
    pair.run();
    expect(left.poll()).toMatchObject([{ wrId: 2, status: 'SUCCESS' }]);
  });
});

test('a count of elements that changes after the entry was checked', () => {
  const { pair, left, write } = setUp();
  let sent = 0;
  pair.fault = (packet) => {
    if (++sent !== 2) return [{ packet, delay: 0 }];
    // The second packet is lost: to send it again, the list is walked.
    const w = left.sq.wordOf(0);
    left.sq.words[w + SendWqe.SGE_COUNT] = 0xffff_ffff;
    for (let i = 0; i < 4; i++) left.sq.words[w + SendWqe.SGE + 4 * i + Sge.LENGTH] = 0;
    return [];
  };
  write(1, 3000);
  soon(() => pair.run());
  const [{ status }] = left.poll();
  expect(status).toBe('LOC_PROT_ERR');
});
