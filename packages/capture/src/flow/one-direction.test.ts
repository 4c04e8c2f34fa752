/** Requests without answers: of a capture of one direction, and before the first answer. */
import { Opcode, setU16 } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { CaptureBuilder, frameOf } from '../../testing/capture-builder.ts';

/** More packets than wait for a first answer. */
const MANY = 1500;

test('messages of one direction end while the capture is read, and retransmissions are recognized', () => {
  const capture = new CaptureBuilder();
  for (let psn = 0; psn < MANY; psn++) capture.packet(psn * 10, 'a', 'RC_SEND_ONLY', { psn, payload: 8 });
  expect(capture.messages.length).toBeGreaterThan(MANY - 200);
  const time = MANY * 10 + 67_000;
  for (const psn of [MANY - 2, MANY - 1])
    capture.packet(time + psn, 'a', 'RC_SEND_ONLY', { psn, payload: 8 });
  const { connections } = capture.finish();
  expect(connections).toMatchObject([
    { messagesFromA: { total: MANY, incomplete: MANY, failed: 0 }, aToB: { retransmitted: 2, gaps: 0 } },
  ]);
});

test('a message of more packets that is answered at its end is completed', () => {
  const capture = new CaptureBuilder();
  for (let psn = 0; psn < MANY; psn++) {
    const opcode = psn === 0 ? 'RC_SEND_FIRST' : psn < MANY - 1 ? 'RC_SEND_MIDDLE' : 'RC_SEND_LAST';
    capture.packet(psn, 'a', opcode, { psn, payload: 256 });
  }
  capture.packet(MANY + 10, 'b', 'RC_ACKNOWLEDGE', { psn: MANY - 1 });
  const { connections } = capture.finish();
  expect(connections).toMatchObject([{ messagesFromA: { total: 1, completed: 1, bytes: MANY * 256 } }]);
  expect(capture.messages).toMatchObject([{ latency: (MANY + 10) * 1000 }]);
});

test('messages of many queue pairs that wait to be paired have one bound', { tags: ['slow'] }, () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 51_000; i++)
    capture.packet(i, 'a', 'UD_SEND_ONLY', { psn: i, payload: 8, destQp: 100 + (i % 60) });
  expect(capture.messages.length).toBeGreaterThan(800);
  expect(capture.finish().connections.length).toBe(60);
  expect(capture.messages.length).toBe(51_000);
});

test('requests in IP fragments, which are not read: the note on one direction names them', () => {
  const note = (fragments: number) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 3; i++) {
      const frame = frameOf('a', Opcode.RC_SEND_ONLY, { psn: 100 + i, payload: 1024, id: 100 + i });
      const first = frame.slice(0, 620);
      setU16(first, 2, first.length);
      first[6] = 0x20; // More fragments.
      if (i < fragments) capture.other(i * 1000, first);
      capture.packet(i * 1000 + 100, 'b', 'RC_ACKNOWLEDGE', { psn: 100 + i });
    }
    return capture.finish().findings.find(({ kind }) => kind === 'one-direction');
  };
  expect(note(3)?.text).toContain('the other one may be in the 3 fragmented packets that could not be read');
  expect(note(3)?.hint).toContain('path MTU');
  // One of another program, or none.
  for (const few of [1, 0]) expect(note(few)?.hint).toContain('Mirror both directions');
});
