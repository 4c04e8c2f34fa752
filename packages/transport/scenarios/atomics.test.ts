/** Atomics at the responder: 64-bit numbers in the machine's order, whole or not at all (IBTA vol 1 §9.4.5). */
import { Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../testing/by-hand.ts';

const P = 1000;
const MAX = 0xffff_ffff_ffff_ffffn;

/** A cell of eight bytes in the middle of memory. */
function make(value: bigint) {
  const hand = new ByHand({ rqPsn: P });
  const memory = new Uint8Array(24).fill(0xee);
  const cell = new DataView(memory.buffer);
  cell.setBigUint64(8, value, true);
  const { addr, rkey } = hand.side.register(memory.buffer);
  let psn = P;
  const atomic = (opcode: number, swapAdd: bigint, compare = 0n) => {
    hand.put({ opcode, psn: psn++, atomic: { addr: addr + 8n, rkey, swapAdd, compare } });
    return hand.out().map(inShort);
  };
  const value64 = () => {
    // Nothing next to it is touched.
    expect([...memory.subarray(0, 8), ...memory.subarray(16)]).toEqual(new Array(16).fill(0xee));
    return cell.getBigUint64(8, true);
  };
  return { atomic, value64 };
}

test.each([
  [0n, 1n, 1n],
  [0xffff_fffen, 1n, 0xffff_ffffn],
  [0xffff_ffffn, 1n, 0x1_0000_0000n],
  [0x1234_5678_9abc_def0n, 0x0101_0101_0101_0101n, 0x1335_5779_9bbd_dff1n],
  [0x0000_0001_8000_0000n, 0x0000_0002_8000_0000n, 0x0000_0004_0000_0000n],
  [MAX, 1n, 0n],
  [5n, MAX, 4n],
])('FETCH_ADD: %i + %i', (before, add, after) => {
  const { atomic, value64 } = make(before);
  expect(atomic(Opcode.RC_FETCH_ADD, add)).toEqual([['ATOMIC_ACKNOWLEDGE', P, before]]);
  expect(value64()).toBe(after);
});

describe('CMP_SWAP', () => {
  const before = 0x1122_3344_5566_7788n;
  const swap = 0xa1a2_a3a4_a5a6_a7a8n;

  test('puts the new value where the old one is the expected', () => {
    const { atomic, value64 } = make(before);
    expect(atomic(Opcode.RC_COMPARE_SWAP, swap, before)).toEqual([['ATOMIC_ACKNOWLEDGE', P, before]]);
    expect(value64()).toBe(swap);
    expect(atomic(Opcode.RC_COMPARE_SWAP, 1n, before)).toEqual([['ATOMIC_ACKNOWLEDGE', P + 1, swap]]);
    expect(value64()).toBe(swap);
  });

  test.each([0n, before ^ 1n, before ^ (1n << 32n), before ^ (1n << 63n)])(
    'changes nothing where %i is expected, and returns the value that is there',
    (compare) => {
      const { atomic, value64 } = make(before);
      expect(atomic(Opcode.RC_COMPARE_SWAP, swap, compare)).toEqual([['ATOMIC_ACKNOWLEDGE', P, before]]);
      expect(value64()).toBe(before);
    },
  );
});
