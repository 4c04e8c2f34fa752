/** Which requests ask for an ACK: the last of a turn, so that neither the timer nor the peer waits for the next (docs/run-loop.md). */
import { bthAckReq } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ByHand } from '../../testing/by-hand.ts';
import { gatherSlot, TxBatch } from '../index.ts';

const MTU = 256;

function setUp() {
  const hand = new ByHand({ pathMtu: MTU });
  const { adapter } = hand.side;
  const mr = hand.side.register(new ArrayBuffer(1 << 16));
  /** The AckReq bits of the packets of one batch, which has room for so many. */
  const turn = (room: number) => {
    const batch = new TxBatch(adapter.regions, room, 4 * room + 64);
    adapter.transmit(batch);
    const bits = Array.from({ length: batch.count }, (_, i) => bthAckReq(gatherSlot(batch, i), 0));
    adapter.sent(batch);
    return bits;
  };
  const write = (length: number) =>
    hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length }], remote: { addr: 0n, rkey: 0 } });
  return { hand, turn, write };
}

// From 4 on, the window at the start asks for more of them.
test.each([1, 2, 3, 4])('the last packet of a turn of %i, though more are to come', (room) => {
  const { turn, write } = setUp();
  write(30 * MTU);
  const bits = [...Array.from({ length: room - 1 }, () => 0), 1];
  expect(turn(room)).toEqual(bits);
  expect(turn(room)).toEqual(bits);
});

test('the last packet of a message', () => {
  const { turn, write } = setUp();
  write(3 * MTU);
  write(2 * MTU);
  expect(turn(64)).toEqual([0, 0, 1, 0, 1]);
});

test('not each packet that waits for its time: those in between are acknowledged with it', () => {
  const { hand, turn, write } = setUp();
  hand.side.adapter.modifyQp(hand.side.qp.qpn, { rateLimit: 1_000_000 });
  write(30 * MTU);
  expect(turn(64)).toEqual([0]);
});
