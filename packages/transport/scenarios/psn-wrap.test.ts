/**
 * PSNs are 24 bits and come again: what was executed is a duplicate only for half the PSN space (IBTA vol 1 §9.7.1, §9.7.4.1.1),
 * and no two numbers are compared across half of their range.
 */
import { Opcode, psnAdd } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../testing/by-hand.ts';
import { requester } from '../testing/window-peer.ts';

const P = 1000;
const MTU = 256;
/** A READ of so many bytes takes 2^18 PSNs. */
const CHUNK = 1 << 26;

/** A responder that has to give access to 64 MiB and to remember 128 READs and atomics. */
function responder() {
  const hand = new ByHand({ rqPsn: P, pathMtu: MTU, maxDestRdAtomic: 128 });
  const mr = hand.side.register(new ArrayBuffer(CHUNK));
  const counter = hand.side.register(new ArrayBuffer(8));
  const read = (psn: number, length: number) =>
    hand.packet({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn, reth: { addr: mr.addr, rkey: mr.rkey, length } });
  /** Takes up so many PSNs, with READs. */
  const pass = (first: number, psns: number) => {
    for (let done = 0; done < psns; ) {
      const some = Math.min(psns - done, CHUNK / MTU);
      hand.put(read(psnAdd(first, done), some * MTU));
      expect(hand.drain()).toBe(some);
      done += some;
    }
  };
  const add = (psn: number, swapAdd: bigint) => {
    const { addr, rkey } = counter;
    hand.put({ opcode: Opcode.RC_FETCH_ADD, psn, atomic: { addr, rkey, swapAdd } });
    return hand.out().map(inShort);
  };
  return { hand, pass, add, read };
}

// C5 (§9.7.5.1.5, §9.7.4.1.1). Once: every duplicate inside of the old READ is dropped, and that of the second atomic is answered with
// the first one's value.
test('a READ or an atomic is remembered for half the PSN space and forgotten when its PSNs come again', {
  tags: ['slow'],
}, () => {
  const { hand, pass, add, read } = responder();
  hand.put(read(P, 4096 * MTU));
  expect(hand.drain()).toBe(4096);
  const A = P + 4096;
  expect(add(A, 1000n)).toEqual([['ATOMIC_ACKNOWLEDGE', A, 0n]]);
  // 2^23 − 1 before the expected PSN, it is still a duplicate.
  pass(A + 1, 2 ** 23 - 2);
  expect(add(A, 1000n)).toEqual([['ATOMIC_ACKNOWLEDGE', A, 0n]]);

  // An atomic where the READ was.
  pass(A + 2 ** 23 - 1, 2 ** 23 - 4096 + 100 + 1);
  const inside = P + 100;
  for (let i = 0; i < 4; i++) expect(add(inside, 1n)).toEqual([['ATOMIC_ACKNOWLEDGE', inside, 1000n]]);

  // An atomic where the atomic was.
  pass(inside + 1, A - inside - 1);
  for (let i = 0; i < 4; i++) expect(add(A, 10n)).toEqual([['ATOMIC_ACKNOWLEDGE', A, 1001n]]);
  expect(add(A + 1, 0n)).toEqual([['ATOMIC_ACKNOWLEDGE', A + 1, 1011n]]);
});

describe('a READ that goes on over the wrap of PSNs', () => {
  test('is answered, and asked for again from its middle', () => {
    const hand = new ByHand({ rqPsn: 0xff_fffe, pathMtu: MTU });
    const bytes = Uint8Array.from({ length: 5 * MTU }, (_, i) => i >> 8);
    const { addr, rkey } = hand.side.register(bytes.buffer);
    const reth = { addr, rkey, length: 5 * MTU };
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0xff_fffe, reth });
    const all = [
      ['RDMA_READ_RESPONSE_FIRST', 0xff_fffe],
      ['RDMA_READ_RESPONSE_MIDDLE', 0xff_ffff],
      ['RDMA_READ_RESPONSE_MIDDLE', 0],
      ['RDMA_READ_RESPONSE_MIDDLE', 1],
      ['RDMA_READ_RESPONSE_LAST', 2],
    ];
    expect(hand.out().map(inShort)).toEqual(all);
    const rest = { addr: addr + BigInt(3 * MTU), rkey, length: 2 * MTU };
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1, reth: rest });
    const packets = hand.out();
    expect(packets.map(inShort)).toEqual([
      ['RDMA_READ_RESPONSE_FIRST', 1],
      ['RDMA_READ_RESPONSE_LAST', 2],
    ]);
    expect([...packets[0].subarray(16, 18), ...packets[1].subarray(16, 18)]).toEqual([3, 3, 4, 4]);
  });
});

// M1. Once: from 2^23 packets after a loss to 2^24, a NAK no longer halves the window.
test.each([2 ** 23 + 2 ** 12])(
  'a loss halves the window although the last one was %i packets ago',
  { tags: ['slow'] },
  (packets) => {
    const peer = requester();
    peer.open();
    peer.lose();
    peer.acknowledge(peer.fill());
    let passed = 0;
    while (passed < packets) {
      passed += peer.fill();
      peer.acknowledge();
    }
    expect(peer.fill()).toBe(512);
    peer.lose();
    expect(peer.fill()).toBe(256);
  },
);
