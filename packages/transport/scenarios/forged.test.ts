/** The effects of a forged packet, with the peer's address on it, on a connection: as little as may be. */
import { Opcode, writeAeth, writeBth } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Icrc, RX_SLOT_WORDS, Rx, RxBatch } from '../src/batch.ts';
import { gidOf, Pair, type Side } from '../testing/pair.ts';

/** Gives a packet to a side, as from the other one. */
function give(pair: Pair, side: Side, packet: Uint8Array): void {
  const batch = new RxBatch(1, packet.length);
  batch.slab.set(packet);
  batch.slots.fill(0, 0, RX_SLOT_WORDS);
  batch.slots[Rx.LENGTH] = packet.length;
  batch.slots[Rx.VERDICT] = Icrc.OK;
  batch.sources.set(gidOf(side === pair.left ? 2 : 1));
  batch.count = 1;
  side.adapter.receive(batch);
}

function ack(qpn: number, psn: number, syndrome: number, msn: number): Uint8Array {
  const packet = new Uint8Array(16);
  writeBth(packet, 0, Opcode.RC_ACKNOWLEDGE, 0, 0xffff, qpn, psn);
  writeAeth(packet, 12, syndrome, msn);
  return packet;
}

test('credits in an old ACK limit nothing once the peer has announced that there is no limit', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const [from, to] = [left.register(new ArrayBuffer(64)), right.register(new ArrayBuffer(64))];
  for (let i = 0; i < 30; i++) right.postRecv(i, [{ mr: to, length: 64 }]);
  left.post({ opcode: 'SEND', sge: [{ mr: from, length: 64 }] });
  pair.run();
  expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);

  // Half of all PSNs lie in the past: no need to guess.
  give(pair, left, ack(left.qp.qpn, (0x10 - 100_000) & 0xff_ffff, 0x00, 0));
  pair.sent.length = 0;
  for (let i = 0; i < 20; i++) left.post({ opcode: 'SEND', sge: [{ mr: from, length: 64 }] });
  pair.run(1);
  expect(pair.sent.length).toBe(20);
  pair.run();
  expect(left.poll().filter(({ status }) => status === 'SUCCESS')).toHaveLength(20);
});
