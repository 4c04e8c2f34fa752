/** IBV_QP_CAP of a raw packet queue pair: what is posted survives, on both queues. */
import { describe, expect, test } from 'vitest';
import { frameOf, setUpRaw } from '../../testing/raw-side.ts';

describe.each([
  ['before the program goes over', false],
  ['after it', true],
])('frames sent and received %s', (_, hasMoved) => {
  test('keep their order', () => {
    const side = setUpRaw();
    side.activate();
    side.port.room = 0;
    side.send(1, [60]);
    side.inline(2, frameOf(7, 20));
    side.receive(10, 0, 64);
    const goOver = side.resize({ maxSendWr: 32, maxRecvWr: 2, maxInlineData: 128 });
    if (hasMoved) goOver();
    side.send(3, [61]);
    side.receive(11, 100, 64);
    if (!hasMoved) goOver();
    side.adapter.checkInvariants();
    side.port.room = 9;
    side.port.arrived.push(frameOf(1), frameOf(2));
    expect(side.poll().sort()).toEqual([
      [1, 'SUCCESS', 60],
      [10, 'SUCCESS', 60],
      [11, 'SUCCESS', 60],
      [2, 'SUCCESS', 20],
      [3, 'SUCCESS', 61],
    ]);
    expect(side.port.sent.map(({ length }) => length)).toEqual([60, 20, 61]);
    expect(side.port.sent[1]).toEqual(frameOf(7, 20));
    expect([side.memory[0], side.memory[100]]).toEqual([1, 2]);
    expect(side.adapter.queryQp(side.qpn).attr.cap).toMatchObject({ maxSendWr: 32, maxRecvWr: 2 });
  });
});

test('a frame that waits for the port is sent from where its bytes are', () => {
  const side = setUpRaw();
  side.activate();
  side.port.room = 0;
  side.inline(1, frameOf(1, 30));
  for (const size of [16, 4, 64]) side.resize({ maxSendWr: size })();
  side.inline(2, frameOf(2, 31));
  side.port.room = 2;
  expect(side.poll().map(([wrId]) => wrId)).toEqual([1, 2]);
  expect(side.port.sent).toEqual([frameOf(1, 30), frameOf(2, 31)]);
});

test.each([
  ['maxSendWr', { maxSendWr: 1 }],
  ['maxRecvWr', { maxRecvWr: 1 }],
  ['maxSendSge', { maxSendSge: 1 }],
  ['maxInlineData', { maxInlineData: 16 }],
])('%s below what is posted is refused, and nothing has changed', (name, sizes) => {
  const side = setUpRaw();
  side.activate();
  side.port.room = 0;
  side.send(1, [30, 30]);
  side.inline(2, frameOf(1, 20));
  side.receive(3, 0, 64);
  side.receive(4, 64, 64);
  const before = side.adapter.queryQp(side.qpn);
  expect(() => side.resize(sizes)).toThrow(
    expect.objectContaining({ errno: 'EINVAL', attribute: `cap.${name}` }),
  );
  expect(side.adapter.queryQp(side.qpn)).toEqual(before);
  side.port.room = 2;
  expect(side.poll().map(([wrId]) => wrId)).toEqual([1, 2]);
});

test('a second resize waits for the first', () => {
  const side = setUpRaw();
  side.activate();
  const goOver = side.resize({ maxSendWr: 16 });
  expect(() => side.resize({ maxSendWr: 32 })).toThrow(
    expect.objectContaining({ errno: 'EBUSY', attribute: 'cap' }),
  );
  goOver();
  side.resize({ maxSendWr: 32 })();
  expect(side.adapter.queryQp(side.qpn).attr.cap?.maxSendWr).toBe(32);
});

test.each(['ERR', 'RESET', 'SQE'] as const)('%s between the two halves: each request ends once', (state) => {
  const side = setUpRaw();
  side.activate();
  side.port.room = 0;
  side.send(1, [60]);
  side.receive(2, 0, 64);
  const goOver = side.resize({ maxSendWr: 16, maxRecvWr: 16 });
  if (state === 'SQE') {
    side.port.room = 1;
    side.send(3, [13]);
  } else side.modify({ qpState: state });
  goOver();
  expect(side.state).toBe(state);
  if (state !== 'RESET') side.send(4, [60]);
  const sends = side.poll().filter(([wrId]) => wrId !== 2);
  const flushed = [1, 'WR_FLUSH_ERR', 60] as const;
  const expected = {
    ERR: [flushed, [4, 'WR_FLUSH_ERR', 60]],
    RESET: [],
    SQE: [
      [1, 'SUCCESS', 60],
      [3, 'LOC_LEN_ERR', expect.any(Number)],
      [4, 'WR_FLUSH_ERR', 60],
    ],
  }[state];
  expect(sends).toEqual(expected);
  side.adapter.checkInvariants();
});

test('inline data of the new size is sent, and of the old one before', () => {
  const side = setUpRaw();
  side.activate();
  side.resize({ maxInlineData: 200 })();
  side.inline(1, frameOf(3, 200));
  expect(side.poll()).toEqual([[1, 'SUCCESS', 200]]);
  expect(side.port.sent).toEqual([frameOf(3, 200)]);
});
