/** Messages of one packet leave in runs: packets, errors and completions are those of the common path. */
import { expect, test } from 'vitest';
import { Pair, type WorkInit } from '../../testing/pair.ts';
import { SendFlags } from '../index.ts';

const { SIGNALED, SOLICITED, FENCE } = SendFlags;
const MTU = 1024;
const AREA = 64 * 1024;

/** A message of elements of these lengths. */
type Message = Omit<WorkInit, 'sge'> & { lengths?: number[]; offset?: number };

/** Packets that leave and completions, where all are posted at once, with further flags. */
function play(messages: Message[], flags: number, type: 'RC' | 'UC') {
  const pair = new Pair({ type, mtu: MTU });
  const { left, right } = pair;
  const mr = left.register(new Uint8Array(AREA).map((_, i) => i * 7).buffer);
  const remote = right.register(new ArrayBuffer(AREA));
  const packets: string[] = [];
  pair.watch = (event, side, packet) => {
    if (event === 'sent' && side === left) packets.push(Buffer.from(packet).toString('hex'));
  };
  for (const [wrId, { lengths = [], offset = 0, ...message }] of messages.entries()) {
    right.postRecv(wrId, [{ mr: remote, length: 4 * MTU }]);
    const sge = lengths.map((length) => ({ mr, offset, length }));
    left.post({ wrId, remote, ...message, sge, flags: (message.flags ?? SIGNALED) | flags });
  }
  pair.run(1_000_000);
  left.adapter.checkInvariants();
  return { packets, sends: left.poll(), receives: right.poll() };
}

const SEND: Message = { opcode: 'SEND', lengths: [64] };
const WRITE: Message = { opcode: 'RDMA_WRITE', lengths: [MTU] };
const CASES: Record<string, Message[]> = {
  'plain ones': [SEND, WRITE, { ...SEND, lengths: [1], flags: SOLICITED }, SEND, { ...SEND, lengths: [MTU] }],
  'inline ones': [SEND, { opcode: 'SEND', inline: Uint8Array.of(1, 2, 3) }, SEND],
  'others between them': [
    SEND,
    { ...WRITE, lengths: [MTU + 1] },
    { ...SEND, lengths: [] },
    { ...SEND, lengths: [8, 8] },
    { ...SEND, lengths: [64, 0] },
    { ...SEND, opcode: 'SEND_WITH_IMM', immediate: 5 },
    SEND,
  ],
  'memory outside of its region': [SEND, { ...SEND, offset: AREA - 63 }, SEND],
  'an element too many': [SEND, { ...SEND, lengths: [1, 1, 1, 1, 1] }, SEND],
};

// A fence without a READ before it holds nothing back, and is not plain.
test.each(Object.entries(CASES))('%s', (_, messages) => {
  for (const type of ['RC', 'UC'] as const) {
    const run = play(messages, 0, type);
    expect(run).toEqual(play(messages, FENCE, type));
    expect(run.packets.length).toBeGreaterThan(0);
  }
});

test('a fence holds, behind messages of a run', () => {
  const { sends, packets } = play(
    [SEND, { opcode: 'RDMA_READ', lengths: [64] }, { ...SEND, flags: SIGNALED | FENCE }, SEND],
    0,
    'RC',
  );
  expect(sends.map(({ wrId, status }) => [wrId, status])).toEqual([0, 1, 2, 3].map((i) => [i, 'SUCCESS']));
  expect(packets).toHaveLength(4);
});
