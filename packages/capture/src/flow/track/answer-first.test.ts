/** Captures of several queues or ports may show an answer before its request. */
import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';

/** Messages of one packet; the answer to the sixth comes `lead` µs before it. */
function capture(lead: number, withIds: boolean) {
  const builder = new CaptureBuilder();
  for (let i = 0; i < 12; i++) {
    const time = i * 1000 + (i > 5 ? lead : 0);
    const ids = withIds ? { id: 300 + i } : {};
    const send = (at: number) =>
      builder.packet(at, 'a', 'RC_SEND_ONLY', { psn: 100 + i, payload: 64, ackReq: true, ...ids });
    const ack = (at: number) => builder.packet(at, 'b', 'RC_ACKNOWLEDGE', { psn: 100 + i });
    if (i === 5) {
      ack(time);
      send(time + lead);
    } else {
      send(time);
      ack(time + 20);
    }
  }
  return builder.finish();
}

for (const withIds of [true, false]) {
  test(`nothing was retransmitted, ${withIds ? 'with' : 'without'} Identifications`, () => {
    const { verdict, connections, findings } = capture(10, withIds);
    expect(connections[0].aToB).toMatchObject({ retransmitted: 0, goBacks: 0, missedByCapture: 0, late: 1 });
    expect(findings.filter(({ severity }) => severity !== 'note')).toEqual([]);
    expect(verdict.kind).toBe('healthy');
  });
}

test('so long after its answer it is a retransmission', () => {
  const { connections } = capture(100_000, true);
  expect(connections[0].aToB).toMatchObject({ retransmitted: 1 });
});
