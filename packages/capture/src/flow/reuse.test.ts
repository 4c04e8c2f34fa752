/** Two connections, one after the other, with the same queue pair numbers. */
import type { OpcodeName } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { CaptureBuilder, QP } from '../../testing/capture-builder.ts';
import type { Analysis } from './analysis.ts';

const SECOND = 1e6;

/** Four WRITEs of one packet from `psn` on, each answered 10 µs after it was sent. */
function life(
  capture: CaptureBuilder,
  time: number,
  psn: number,
  transport: 'RC' | 'UC' = 'RC',
  from: 'a' | 'b' = 'a',
) {
  const opcode: OpcodeName = `${transport}_RDMA_WRITE_ONLY`;
  for (let i = 0; i < 4; i++) {
    const at = time + 100 * i;
    capture.packet(at, from, opcode, { psn: (psn + i) & 0xff_ffff, payload: 64, length: 64, ackReq: true });
    if (transport === 'RC')
      capture.packet(at + 10, from === 'a' ? 'b' : 'a', 'RC_ACKNOWLEDGE', { psn: (psn + i) & 0xff_ffff });
  }
  return capture;
}

const reused = ({ findings }: Analysis) => findings.filter(({ kind }) => kind === 'queue-pairs-reused');
const sums = ({ connections }: Analysis) =>
  connections.map(({ id, messagesFromA, messagesFromB, aToB, bToA }) => ({
    id,
    messages: messagesFromA.total + messagesFromB.total,
    retransmitted: aToB.retransmitted + bToA.retransmitted,
    packets: aToB.packets + bToA.packets,
  }));

describe('queue pair numbers used again', () => {
  test.each([
    ['the same starting PSN', 500, 500],
    ['a starting PSN further on', 500, 0x70_0000],
    ['one far back', 0x70_0000, 500],
    ['across the end of the PSNs', 0xff_fffe, 0xff_fffe],
  ])('a minute later, %s: two connections, nothing retransmitted', (_, first, second) => {
    const capture = life(life(new CaptureBuilder(), 0, first), 60 * SECOND, second);
    const analysis = capture.finish();
    expect(sums(analysis)).toEqual([
      { id: 1, messages: 4, retransmitted: 0, packets: 8 },
      { id: 2, messages: 4, retransmitted: 0, packets: 8 },
    ]);
    for (const { a, b, pairing } of analysis.connections) {
      expect([a.qpn, b.qpn]).toEqual([QP.a, QP.b]);
      expect(pairing).toBe('certain');
    }
    expect(capture.messages.map(({ connection, outcome }) => [connection, outcome])).toEqual([
      ...Array(4).fill([1, 'completed']),
      ...Array(4).fill([2, 'completed']),
    ]);
    expect(analysis.findings).toMatchObject([{ kind: 'queue-pairs-reused', connection: 2, frameCount: 1 }]);
    // The capture may as well have stopped in between.
    expect(reused(analysis)[0].text).toMatch(
      /60 s after the last packet .*, or packets of one connection in between/,
    );
  });

  test('both ends send in both connections', () => {
    const capture = new CaptureBuilder();
    for (const [time, psn] of [
      [0, 100],
      [60 * SECOND, 100],
      [120 * SECOND, 9000],
    ]) {
      life(capture, time, psn);
      life(capture, time + 1000, psn + 5000, 'RC', 'b');
    }
    const analysis = capture.finish();
    expect(sums(analysis)).toEqual(
      [1, 2, 3].map((id) => ({ id, messages: 8, retransmitted: 0, packets: 16 })),
    );
    expect(reused(analysis).length).toBe(2);
  });

  test('UC: nothing comes again there', () => {
    const analysis = life(life(new CaptureBuilder(), 0, 500, 'UC'), 6 * SECOND, 500, 'UC').finish();
    expect(sums(analysis)).toMatchObject([
      { id: 1, messages: 4 },
      { id: 2, messages: 4 },
    ]);
  });

  test('one direction alone', () => {
    const capture = new CaptureBuilder();
    for (const time of [0, 60 * SECOND])
      for (let i = 0; i < 4; i++)
        capture.packet(time + i, 'b', 'RC_SEND_ONLY', { psn: 0x1000 * (time > 0 ? 9 : 1) + i, payload: 8 });
    expect(sums(capture.finish())).toMatchObject([
      { messages: 4, retransmitted: 0 },
      { messages: 4, retransmitted: 0 },
    ]);
  });
});

describe('the connection manager shows a new connection', () => {
  /** REQ, REP and RTU at `time`; the same numbers of queue pairs in each. */
  const connect = (capture: CaptureBuilder, time: number, id: number) => {
    const [local, remote] = [id, id + 1];
    const transactionId = BigInt(id);
    capture.cm(time, 'a', { name: 'REQ', transactionId, localCommId: local, localQpn: QP.a, pathMtu: 3 });
    capture.cm(time + 1, 'b', { name: 'REP', localCommId: remote, remoteCommId: local, localQpn: QP.b });
    return capture.cm(time + 2, 'a', { name: 'RTU', localCommId: local, remoteCommId: remote });
  };

  test.each([
    ['a PSN far back', 0x70_0000, 500],
    ['a PSN a little back', 500, 490],
    ['the PSN where the old one stopped', 500, 504],
  ])('a second later, %s: two connections, nothing retransmitted', (_, first, second) => {
    const capture = connect(new CaptureBuilder(), 0, 10);
    life(capture, 1000, first);
    connect(capture, SECOND, 20);
    life(capture, SECOND + 1000, second);
    const analysis = capture.finish();
    expect(sums(analysis)).toEqual([
      { id: 1, messages: 4, retransmitted: 0, packets: 8 },
      { id: 2, messages: 4, retransmitted: 0, packets: 8 },
    ]);
    expect(analysis.connections.map(({ pairing }) => pairing)).toEqual(['cm', 'cm']);
    expect(reused(analysis)).toMatchObject([{ connection: 2, frameCount: 1 }]);
    expect(reused(analysis)[0].text).toMatch(/of another connection that had both$/);
  });

  test('of one that was there when the capture began', () => {
    const capture = connect(life(new CaptureBuilder(), 0, 500), SECOND, 20);
    expect(sums(life(capture, SECOND + 1000, 400).finish())).toMatchObject([
      { messages: 4, retransmitted: 0 },
      { messages: 4, retransmitted: 0 },
    ]);
  });

  test('REQ and REP that come again end nothing', () => {
    const capture = connect(new CaptureBuilder(), 0, 10);
    life(capture, 1000, 500);
    connect(capture, SECOND, 10);
    const analysis = life(capture, SECOND + 1000, 504).finish();
    expect(sums(analysis)).toEqual([{ id: 1, messages: 8, retransmitted: 0, packets: 16 }]);
  });
});

describe('one connection, after a pause', () => {
  test('that goes on', () => {
    const analysis = life(life(new CaptureBuilder(), 0, 500), 60 * SECOND, 504).finish();
    expect(sums(analysis)).toEqual([{ id: 1, messages: 8, retransmitted: 0, packets: 16 }]);
  });

  test('of which the capture missed packets', () => {
    const analysis = life(life(new CaptureBuilder(), 0, 500), 60 * SECOND, 520).finish();
    expect(analysis.connections.length).toBe(1);
    expect(reused(analysis)).toEqual([]);
  });

  test('whose ACK was lost behind the tap: the last packet again, after the timer of timeout 21', () => {
    const capture = life(new CaptureBuilder(), 0, 500);
    capture.packet(9 * SECOND, 'a', 'RC_RDMA_WRITE_ONLY', {
      psn: 503,
      payload: 64,
      length: 64,
      ackReq: true,
    });
    expect(sums(capture.finish())).toMatchObject([{ id: 1, retransmitted: 1 }]);
  });

  test('whose last packet was not answered: it comes again a minute later', () => {
    const capture = life(new CaptureBuilder(), 0, 500);
    for (const time of [1000, 60 * SECOND])
      capture.packet(time, 'a', 'RC_RDMA_WRITE_ONLY', { psn: 504, payload: 64, length: 64, ackReq: true });
    expect(sums(capture.finish())).toMatchObject([{ id: 1, retransmitted: 1 }]);
  });
});
