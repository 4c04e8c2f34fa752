/** Retransmission begins at the byte where the lost packet began, wherever in the list that is (IBTA vol 1 §9.7.5.2.8, §9.4.4). */
import {
  BTH_BYTES,
  bthOpcode,
  NakCode,
  Opcode,
  psnAdd,
  RETH_BYTES,
  rethLength,
  rethRkey,
  rethVaHigh,
  rethVaLow,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../../testing/by-hand.ts';

const FIRST = 0xff_fffd;
const MTU = 256;

function setUp() {
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: MTU }, { recovery: { selective: false } });
  const bytes = Uint8Array.from({ length: 4096 }, (_, i) => (i * 7 + (i >> 8) * 13) & 0xff);
  const mr = hand.side.register(bytes.buffer);
  const nak = (index: number) =>
    hand.put({
      opcode: Opcode.RC_ACKNOWLEDGE,
      psn: psnAdd(FIRST, index),
      aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR },
    });
  return { hand, bytes, mr, nak };
}

describe.each([
  ['one element', [1500]],
  ['elements of whole packets', [256, 512, 256, 476]],
  ['elements that end inside of packets', [100, 255, 702, 443]],
  ['elements of a byte, and of nothing', [1, 0, 1, 1498]],
  ['an empty element at the end of a packet', [512, 0, 988]],
])('a WRITE from %s', (_name, lengths) => {
  test.each([0, 1, 2, 3, 4, 5])('again from packet %i on', (index) => {
    const { hand, bytes, mr, nak } = setUp();
    // The elements lie in memory in the other order, with gaps.
    let at = 4096;
    const sge = lengths.map((length) => {
      at -= length + 10;
      return { mr, offset: at, length };
    });
    hand.side.post({ opcode: 'RDMA_WRITE', sge, remote: { addr: 0n, rkey: 0 } });
    const payloads = () =>
      hand.out().map((packet) => {
        const headers = BTH_BYTES + (bthOpcode(packet, 0) === Opcode.RC_RDMA_WRITE_FIRST ? RETH_BYTES : 0);
        return [inShort(packet)[1], Buffer.from(packet.subarray(headers)).toString('hex')];
      });
    const first = payloads();
    const message = sge.flatMap(({ offset, length }) => [...bytes.subarray(offset, offset + length)]);
    expect(first.map(([, text]) => text).join('')).toBe(Buffer.from(message).toString('hex'));
    nak(index);
    expect(payloads()).toEqual(first.slice(index));
    // And once more from the end.
    hand.now += 2000;
    nak(5);
    expect(payloads()).toEqual(first.slice(5));
  });
});

test.each([
  ['below 4 GiB', 0x1_0000_0000n - 4000n],
  ['across 4 GiB', 0x1_0000_0000n - 300n],
  ['up to 4 GiB', 0x1_0000_0000n - 512n],
  ['of a high address', 0xffff_fffe_ffff_ff00n],
])('a READ %s is asked for again from the response that is missing', (_name, addr) => {
  const { hand, mr } = setUp();
  hand.side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 1000 }], remote: { addr, rkey: 5 } });
  const requests = () =>
    hand.out().map((packet) => {
      const va = (BigInt(rethVaHigh(packet, BTH_BYTES)) << 32n) | BigInt(rethVaLow(packet, BTH_BYTES));
      const [rkey, length] = [rethRkey(packet, BTH_BYTES), rethLength(packet, BTH_BYTES)];
      return [inShort(packet)[1], { va, rkey, length }];
    });
  expect(requests()).toEqual([[FIRST, { va: addr, rkey: 5, length: 1000 }]]);
  const response = (opcode: number, index: number, aeth?: { syndrome: number }) =>
    hand.put({ opcode, psn: psnAdd(FIRST, index), aeth, payload: new Uint8Array(MTU) });
  response(Opcode.RC_RDMA_READ_RESPONSE_FIRST, 0, { syndrome: 0x1f });
  response(Opcode.RC_RDMA_READ_RESPONSE_MIDDLE, 1);
  response(Opcode.RC_RDMA_READ_RESPONSE_LAST, 3, { syndrome: 0x1f });
  expect(requests()).toEqual([[psnAdd(FIRST, 2), { va: addr + 512n, rkey: 5, length: 488 }]]);
});
