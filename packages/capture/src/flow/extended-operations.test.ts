/** FLUSH and ATOMIC WRITE, which READ responses answer, and XRC (IBTA vol 1 annexes A14 and A19). */
import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../testing/capture-builder.ts';

test.each(['RC', 'XRC'] as const)('%s: all operations are completed by their answers', (transport) => {
  const capture = new CaptureBuilder();
  const op = <T extends string>(name: T) => `${transport}_${name}` as const;
  capture.packet(0, 'a', op('SEND_ONLY'), { psn: 5, payload: 100, ackReq: true });
  capture.packet(10, 'b', op('ACKNOWLEDGE'), { psn: 5 });
  capture.packet(20, 'a', op('ATOMIC_WRITE'), { psn: 6, payload: 8, length: 8, ackReq: true });
  capture.packet(30, 'b', op('RDMA_READ_RESPONSE_ONLY'), { psn: 6 });
  capture.packet(40, 'a', op('FLUSH'), { psn: 7, length: 4096, ackReq: true });
  capture.packet(55, 'b', op('RDMA_READ_RESPONSE_ONLY'), { psn: 7 });
  capture.packet(60, 'a', op('RDMA_READ_REQUEST'), { psn: 8, length: 2000, ackReq: true });
  capture.packet(80, 'b', op('RDMA_READ_RESPONSE_FIRST'), { psn: 8, payload: 1024 });
  capture.packet(81, 'b', op('RDMA_READ_RESPONSE_LAST'), { psn: 9, payload: 976 });
  capture.packet(90, 'a', op('FETCH_ADD'), { psn: 10, ackReq: true });
  capture.packet(99, 'b', op('ATOMIC_ACKNOWLEDGE'), { psn: 10 });
  const { connections, findings } = capture.finish();
  expect(findings).toEqual([]);
  expect(connections).toMatchObject([{ transport, pairing: 'certain' }]);
  expect(
    capture.messages.map(({ operation, bytes, outcome, latency }) => [operation, bytes, outcome, latency]),
  ).toEqual([
    ['SEND', 100, 'completed', 10_000],
    ['ATOMIC_WRITE', 8, 'completed', 10_000],
    ['FLUSH', 0, 'completed', 15_000],
    ['RDMA_READ', 2000, 'completed', 21_000],
    ['FETCH_ADD', 8, 'completed', 9_000],
  ]);
});
