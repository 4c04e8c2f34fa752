/**
 * READs of a responder that has become slow: it answers what it is asked one after the other, and what it is asked in vain makes
 * it slower still. Kernel rxe in an emulated guest is one: a clean path, and each READ was asked for eight times.
 */
import { BTH_BYTES, bthPsn, Opcode, psnAdd, rethLength } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, type PacketInit } from '../../../testing/by-hand.ts';

const MTU = 256;
/** Responses of a READ: four requests. */
const RESPONSES = 256;
const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;
const { RC_RDMA_READ_RESPONSE_LAST, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;

function opcodeOf(index: number, count: number): number {
  if (count === 1) return RC_RDMA_READ_RESPONSE_ONLY;
  if (index === 0) return RC_RDMA_READ_RESPONSE_FIRST;
  return index === count - 1 ? RC_RDMA_READ_RESPONSE_LAST : RC_RDMA_READ_RESPONSE_MIDDLE;
}

/** READs, some of one response at 20 µs, then `count` of four requests each, whose responses take `each` µs, or come at once after `wait` µs. */
function run(count: number, wait: number, each: number) {
  const first = 0xff_ff00;
  const hand = new ByHand({ sqPsn: first, pathMtu: MTU, timeout: 14, retryCnt: 7, maxRdAtomic: 2 });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(RESPONSES * MTU));
  const sizes = [...Array<number>(16).fill(1), ...Array<number>(count).fill(RESPONSES)];
  const statuses: string[] = [];
  const queue: { at: number; packet: PacketInit }[] = [];
  let [busyUntil, asked, isPosted] = [0, 0, false];
  while (statuses.length < sizes.length && hand.now < 120_000_000) {
    const size = sizes[statuses.length];
    if (!isPosted) {
      side.post({
        opcode: 'RDMA_READ',
        sge: [{ mr, length: size * MTU }],
        remote: { addr: 0x10_0000n, rkey: 7 },
      });
      isPosted = true;
    }
    for (const packet of hand.run(1)) {
      const responses = rethLength(packet, BTH_BYTES) / MTU;
      asked += responses;
      const isSmall = size === 1;
      let at = Math.max(hand.now + 20 + (isSmall ? 0 : wait), busyUntil);
      for (let i = 0; i < responses; i++) {
        const opcode = opcodeOf(i, responses);
        const aeth = opcode === RC_RDMA_READ_RESPONSE_MIDDLE ? {} : { aeth: { syndrome: 0x1f } };
        const psn = psnAdd(bthPsn(packet, 0), i);
        if (!isSmall) at += each;
        queue.push({ at, packet: { opcode, psn, ...aeth, payload: new Uint8Array(MTU) } });
      }
      busyUntil = at;
    }
    while (queue.length > 0 && queue[0].at <= hand.now) hand.put(queue.shift()!.packet);
    for (const { status } of side.poll()) {
      statuses.push(status);
      isPosted = false;
    }
  }
  const needed = sizes.reduce((sum, size) => sum + size, 0);
  return { statuses, ratio: asked / needed };
}

describe.each([
  ['each response takes 300 µs', 0, 300],
  ['each request takes 20 ms', 20_000, 0],
  ['both', 5_000, 100],
] as const)('%s', (_, wait, each) => {
  test('all are served, and the responder is not drowned', () => {
    const { statuses, ratio } = run(10, wait, each);
    expect(statuses).toEqual(Array(26).fill('SUCCESS'));
    // The first READ costs most, until the round trip is known: without sparing it was 7 to 48, and some died.
    expect(ratio).toBeLessThan(4);
  });
});
