/** Requests that are outstanding where the capture ends: failed, or may they have gone on? */
import { expect, test } from 'vitest';
import { CaptureBuilder, QP } from '../../../testing/capture-builder.ts';

const send = (capture: CaptureBuilder, time: number, psn: number) =>
  capture.packet(time, 'a', 'RC_SEND_ONLY', { psn, payload: 64, ackReq: true });
const outcomes = ({ messages }: CaptureBuilder) => messages.map(({ outcome, failure }) => failure ?? outcome);

test('one direction: a packet that was retransmitted early, and new ones after it, are no failure', () => {
  const capture = new CaptureBuilder();
  for (const time of [0, 70_000, 140_000]) send(capture, time, 100);
  for (let i = 1; i < 5; i++) send(capture, 140_000 + i * 100, 100 + i);
  const { findings } = capture.finish();
  expect(findings.map(({ kind }) => kind)).not.toContain('retries-exceeded');
  expect(outcomes(capture)).toEqual(Array(5).fill('incomplete'));
});

test('one direction: retransmissions and nothing after them', () => {
  const capture = new CaptureBuilder();
  for (const time of [0, 70_000, 140_000, 210_000]) send(capture, time, 100);
  const { findings } = capture.finish();
  expect(findings[0].text).toContain(
    'has no answer in the capture, which shows one direction: 4 packets sent for it',
  );
  // The requester may have gone on.
  expect(outcomes(capture)).toEqual(['incomplete']);
});

test('a capture that ends before the next retry is due shows no failure', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
  for (const time of [10, 67_010, 134_010]) send(capture, time, 10);
  expect(capture.finish().findings.map(({ kind }) => kind)).not.toContain('retries-exceeded');
  expect(outcomes(capture)).toEqual(['completed', 'incomplete']);
});

test('the last copy that is allowed is waited for, too', () => {
  for (const [more, outcome] of [
    [0, 'incomplete'],
    [67_000, 'retries-exceeded'],
  ] as const) {
    const capture = new CaptureBuilder();
    send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
    for (let copy = 0; copy < 8; copy++) send(capture, 10 + 67_000 * copy, 10);
    if (more > 0) capture.packet(10 + 67_000 * 7 + more, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 });
    capture.finish();
    expect(outcomes(capture)).toContain(outcome);
  }
});

test('a capture that goes on past that time shows it', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
  for (const time of [10, 67_010, 134_010]) send(capture, time, 10);
  capture.packet(500_000, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 });
  const { findings } = capture.finish();
  expect(findings[0]).toMatchObject({
    kind: 'retries-exceeded',
    hint: expect.stringMatching(/^Does the peer/),
  });
  expect(outcomes(capture)).toContain('retries-exceeded');
});

/** SENDs of five packets, each refused with an RNR NAK of 640 µs. */
function refuse(capture: CaptureBuilder, rounds: number): CaptureBuilder {
  send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
  for (let round = 0; round < rounds; round++) {
    const time = 10 + 1000 * round;
    capture.packet(time, 'a', 'RC_SEND_FIRST', { psn: 10, payload: 1024 });
    for (const psn of [11, 12, 13]) capture.packet(time + 1, 'a', 'RC_SEND_MIDDLE', { psn, payload: 1024 });
    capture.packet(time + 2, 'a', 'RC_SEND_LAST', { psn: 14, payload: 9, ackReq: true });
    capture.packet(time + 10, 'b', 'RC_ACKNOWLEDGE', { psn: 10, syndrome: 0x2c });
  }
  return capture;
}

test('RNR NAKs: the capture ends within a wait', () => {
  const capture = refuse(new CaptureBuilder(), 2);
  expect(capture.finish().findings.map(({ severity }) => severity)).not.toContain('error');
  expect(outcomes(capture)).toEqual(['completed', 'incomplete']);
});

test('RNR NAKs: how often the message was sent, and that the capture ends within the wait', () => {
  const capture = refuse(new CaptureBuilder(), 4);
  const { findings } = capture.finish();
  expect(outcomes(capture)).toEqual(['completed', 'incomplete']);
  expect(findings[0].text).toContain('was sent 4 times and refused with RNR NAK each time');
  expect(findings[0].hint).toContain('The capture ends before another retry was due');
});

test('RNR NAKs: nothing comes after the wait', () => {
  const capture = refuse(new CaptureBuilder(), 2);
  capture.packet(500_000, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 });
  const { findings } = capture.finish();
  expect(findings[0].text).toContain('was sent 2 times and refused with RNR NAK each time');
  expect(findings[0].hint).toMatch(/^The receiver posts/);
});

test('RNR NAKs: the last copy has no answer yet where the capture ends', () => {
  const capture = refuse(new CaptureBuilder(), 12);
  capture.packet(12_010, 'a', 'RC_SEND_FIRST', { psn: 10, payload: 1024 });
  const { findings, verdict } = capture.finish();
  expect(findings.map(({ severity }) => severity)).not.toContain('error');
  expect(verdict.kind).toBe('rnr');
  expect(verdict.text).toContain('had no receive posted 12 times (RNR)');
});

test('RNR NAKs, and then nothing: the copies after the last NAK are not answered', () => {
  const capture = refuse(new CaptureBuilder(), 3);
  for (let copy = 1; copy <= 9; copy++)
    capture.packet(3000 + 67_000 * copy, 'a', 'RC_SEND_FIRST', { psn: 10, payload: 1024 });
  const { verdict } = capture.finish();
  expect(verdict.kind).toBe('retries-exceeded');
  expect(verdict.text).toMatch(/stopped answering .*: 9 copies unanswered/);
});

test('the capture ends with the last copy: that the requester gave up is not shown, however many there were', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
  // rxe takes a retry counter of 7 as no limit.
  for (let copy = 0; copy < 40; copy++) send(capture, 10 + 67_000 * copy, 10);
  const { verdict, connections } = capture.finish();
  expect(verdict).toMatchObject({ kind: 'retries-exceeded', certainty: 'likely' });
  expect(verdict.text).toContain('40 copies unanswered.');
  expect(connections[0].ended).toBeUndefined();
  expect(outcomes(capture)).toEqual(['completed', 'incomplete']);
});

test('the last message is found, however many messages the connection had', () => {
  const capture = new CaptureBuilder();
  // More than an analysis keeps of a connection, each sent twice.
  for (let psn = 1; psn <= 450; psn++) {
    for (const time of [0, 67_000]) send(capture, psn * 100_000 + time, psn);
    capture.packet(psn * 100_000 + 67_005, 'b', 'RC_ACKNOWLEDGE', { psn });
  }
  for (let copy = 0; copy < 8; copy++) send(capture, 46e6 + 67_109 * copy, 451);
  capture.packet(50e6, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 });
  const { verdict, connections } = capture.finish();
  expect(verdict.kind).toBe('retries-exceeded');
  expect(connections[0].ended).toMatchObject({ how: 'gave-up', by: 'a' });
});

test('all retries used up, and then silence: a wire that was cut looks like a host that stopped, so neither is certain', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 9).packet(5, 'b', 'RC_ACKNOWLEDGE', { psn: 9 });
  for (let copy = 0; copy < 8; copy++) send(capture, 10 + 67_109 * copy, 10);
  capture.packet(3_000_000, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 });
  const { verdict, connections } = capture.finish();
  expect(verdict).toMatchObject({ kind: 'retries-exceeded', certainty: 'likely' });
  expect(connections[0].ended).toMatchObject({ how: 'gave-up', by: 'a' });
});

test('more RNR NAKs than a retry counter allows: there is no limit, and none was exceeded', () => {
  const { verdict } = refuse(new CaptureBuilder(), 9).finish();
  // 990 µs is long for a wait of 640 µs.
  expect(verdict).toMatchObject({ kind: 'rnr', certainty: 'likely' });
});

/** RNR NAKs of 640 µs for the last of `from`'s SENDs, on a connection whose REQ and REP have these counters; 1 s later nothing else came. */
function refuseEnd(from: 'a' | 'b', req: number, rep: number, naks: number) {
  const capture = new CaptureBuilder();
  const path = { pathMtu: 3, retryCount: 7, primaryAckTimeout: 14 };
  const ids = { transactionId: 1n, localCommId: 7, localQpn: QP.a };
  capture.cm(0, 'a', { name: 'REQ', ...ids, ...path, rnrRetryCount: req });
  capture.cm(1, 'b', { name: 'REP', localCommId: 8, remoteCommId: 7, localQpn: QP.b, rnrRetryCount: rep });
  capture.cm(2, 'a', { name: 'RTU', localCommId: 7, remoteCommId: 8 });
  const to = from === 'a' ? 'b' : 'a';
  const one = (time: number, psn: number, syndrome: number) => {
    capture.packet(time, from, 'RC_SEND_ONLY', { psn, payload: 64, ackReq: true });
    capture.packet(time + 5, to, 'RC_ACKNOWLEDGE', { psn, syndrome });
  };
  one(100, 9, 0x1f);
  for (let i = 0; i < naks; i++) one(200 + 1000 * i, 10, 0x2c);
  return capture.packet(1e6, 'a', 'UC_SEND_ONLY', { psn: 1, destQp: 0x99 }).finish().verdict;
}

test.each([
  ['a', 1, 7],
  ['b', 7, 1],
] as const)('RNR NAKs for %s: REQ %i, REP %i, so the other end set no limit', (from, req, rep) => {
  expect(refuseEnd(from, req, rep, 2)).toMatchObject({ kind: 'rnr', certainty: 'likely' });
});

test.each([
  ['a', 7, 0],
  ['b', 0, 7],
] as const)('RNR NAKs for %s: REQ %i, REP %i, so the other end allowed no retry', (from, req, rep) => {
  const verdict = refuseEnd(from, req, rep, 2);
  expect(verdict).toMatchObject({ kind: 'rnr-retries-exceeded', certainty: 'certain' });
  expect(verdict.text).toMatch(/gave up\.$/);
});
