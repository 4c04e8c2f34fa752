/** Copies of payload: collected, done in order, and done before anybody can look. */
import { Opcode } from '@node-roce/wire';
import { expect, test, vi } from 'vitest';
import { ByHand, type PacketInit } from '../testing/by-hand.ts';
import { COPY_WORDS, Copy, copyBatch } from './index.ts';

const P = 1000;

/** A responder whose copies are noted: how many in each call, and whether a completion was seen before. */
function responder(buffer: ArrayBuffer | SharedArrayBuffer = new ArrayBuffer(4096)) {
  const calls: number[][] = [];
  const hand = new ByHand(
    { rqPsn: P },
    {
      copy: (slab, regions, list, count) => {
        calls.push(Array.from({ length: count }, (_, i) => list[i * COPY_WORDS + Copy.LENGTH]));
        expect(hand.side.cq.used).toBe(0);
        copyBatch(slab, regions, list, count);
      },
    },
  );
  const memory = new Uint8Array(buffer);
  const mr = hand.side.register(buffer);
  const write = (psn: number, offset: number, bytes: number[]): PacketInit => ({
    opcode: Opcode.RC_RDMA_WRITE_ONLY,
    psn,
    reth: { addr: mr.addr + BigInt(offset), rkey: mr.rkey, length: bytes.length },
    payload: Uint8Array.from(bytes),
  });
  return { hand, memory, mr, write, calls };
}

test('those of a batch of packets are done in one call, before its completions are seen', () => {
  const { hand, memory, mr, write, calls } = responder();
  hand.side.postRecv(1, [{ mr, offset: 100, length: 8 }]);
  hand.put(write(P, 0, [1, 2, 3]), write(P + 1, 1, [9]), {
    opcode: Opcode.RC_SEND_ONLY,
    psn: P + 2,
    payload: Uint8Array.of(7, 8),
  });
  expect(calls).toEqual([[3, 1, 2]]);
  expect([...memory.subarray(0, 4), ...memory.subarray(100, 103)]).toEqual([1, 9, 3, 0, 7, 8, 0]);
  expect(hand.side.poll()).toMatchObject([{ wrId: 1, byteLen: 2 }]);
});

test('a packet without payload, or a batch without any, needs none', () => {
  const { hand, write, calls } = responder();
  hand.put(write(P, 0, []));
  expect(calls).toEqual([]);
});

test('an atomic sees the WRITEs before it in its batch', () => {
  const { hand, memory, mr, write, calls } = responder();
  const atomic = { addr: mr.addr, rkey: mr.rkey, swapAdd: 1n };
  hand.put(write(P, 0, [5]), { opcode: Opcode.RC_FETCH_ADD, psn: P + 1, atomic }, write(P + 2, 8, [6]));
  expect([memory[0], memory[8]]).toEqual([6, 6]);
  expect(calls).toEqual([[1], [1]]);
});

test('more than the list holds are done, too, and none twice', () => {
  const { hand, memory, mr, calls } = responder();
  hand.side.createQp({ maxRecvSge: 32, maxRecvWr: 256 });
  hand.connect({ rqPsn: P });
  // Each SEND is scattered to 32 places: 140 of them are 4480 copies, and the list holds 4096.
  const sge = Array.from({ length: 32 }, (_, i) => ({ mr, offset: 2 * i, length: 1 }));
  const packets: PacketInit[] = [];
  for (let i = 0; i < 140; i++) {
    hand.side.postRecv(i, sge);
    packets.push({ opcode: Opcode.RC_SEND_ONLY, psn: P + i, payload: new Uint8Array(32).fill(i + 1) });
  }
  hand.put(...packets);
  expect(calls.map(({ length }) => length)).toEqual([4096, 384]);
  expect([...memory.subarray(0, 64)]).toEqual(Array.from({ length: 64 }, (_, i) => (i % 2 ? 0 : 140)));
  expect(hand.side.poll()).toHaveLength(140);
});

test.each([
  ['shared memory', new SharedArrayBuffer(4096), ['number']],
  ['memory of this thread, which needs no atomic store', new ArrayBuffer(4096), []],
])('no BigInt, which would be on the heap, is made for a copy of whole words to %s', (_, buffer, stored) => {
  const { hand, memory, write } = responder(buffer);
  const store = vi.spyOn(Atomics, 'store');
  hand.put(write(P, 8, [1, 2, 3, 4, 5, 6, 7, 8]), write(P + 1, 4, [9, 9, 9, 9]), write(P + 2, 3, [7]));
  const values = store.mock.calls.map(([, , value]) => typeof value);
  store.mockRestore();
  expect([...new Set(values)]).toEqual(stored);
  expect([...memory.subarray(0, 17)]).toEqual([0, 0, 0, 7, 9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
});
