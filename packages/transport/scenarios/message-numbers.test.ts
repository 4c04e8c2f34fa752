/**
 * SSN and MSN count the same messages, so that the credits of an ACK show which requests may be sent (IBTA vol 1 §9.7.7.1,
 * §9.7.7.2): also for a READ that the requester asks for in several requests, each of which is a message to the responder.
 */
import { bthOpcode, opcodeInfo } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Pair } from '../testing/pair.ts';

const MIB = 1 << 20;

/** A responder that counts its receives, of which so many are posted, and the requests that reach it before an answer does. */
function sendsIntoCredits(receives: number, first: (pair: Pair, read: (length: number) => void) => void) {
  const pair = new Pair({ right: { credits: true } });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(4 * MIB));
  const remote = right.register(new ArrayBuffer(4 * MIB));
  right.postRecv(0, [{ mr: remote, length: 1024 }]);
  for (let i = 0; i < receives; i++) right.postRecv(i, [{ mr: remote, length: 1024 }]);
  left.post({ opcode: 'SEND', sge: [{ mr: local, length: 8 }] });
  pair.run(1000);
  first(pair, (length) => {
    left.post({ opcode: 'RDMA_READ', sge: [{ mr: local, length }], remote });
    pair.run(1_000_000);
  });
  for (const { status } of left.poll()) expect(status).toBe('SUCCESS');
  const before = pair.sent.length;
  for (let i = 0; i < 20; i++) left.post({ opcode: 'SEND', sge: [{ mr: local, length: 1024 }] });
  pair.run(300);
  const sends = pair.sent
    .slice(before)
    .filter(({ from, packet }) => from === left && opcodeInfo(bthOpcode(packet, 0))!.isSend);
  return { sends: sends.length, naks: right.adapter.counters().sentRnrErr };
}

describe('SENDs at the limit of credits', () => {
  // One may go past the limit (§9.7.7.2.5), and draws the RNR NAK.
  const expected = { sends: 4, naks: 1 };

  test('three receives: four SENDs', () => {
    expect(sendsIntoCredits(3, () => {})).toEqual(expected);
  });

  // M4. Once: 20 SENDs, because the responder has counted more messages than the requester.
  test.each([1, 4])('after READs of 1 MiB, %i of them: the same', (reads) => {
    expect(
      sendsIntoCredits(3, (_pair, read) => {
        for (let i = 0; i < reads; i++) read(MIB);
      }),
    ).toEqual(expected);
  });

  // M4.
  test('after a READ that was asked for again from its middle: the same', () => {
    expect(
      sendsIntoCredits(3, (pair, read) => {
        let lost = 0;
        pair.fault = (packet) => {
          const response = opcodeInfo(bthOpcode(packet, 0))!.operation === 0x0e; // RDMA READ response Middle
          return response && ++lost % 37 === 20 && lost < 200 ? [] : [{ packet, delay: 0 }];
        };
        read(MIB);
        pair.fault = undefined;
      }),
    ).toEqual(expected);
  });
});
