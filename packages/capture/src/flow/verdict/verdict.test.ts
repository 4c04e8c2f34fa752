import { LinkType } from '@node-roce/pcap';
import { encodeCm, setU16, setU24, setU32 } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { CaptureBuilder, frameOf } from '../../../testing/capture-builder.ts';
import { ack, send } from '../../../testing/messages.ts';
import { wordsOf } from './index.ts';

const A = '10.0.0.1';
const B = '10.0.0.2';
const MS = 1000;

/** Four messages of one packet that are answered after 100 µs; times in µs, PSNs from `psn` on. */
function talk(capture: CaptureBuilder, start: number, psn: number, count = 4): CaptureBuilder {
  for (let i = 0; i < count; i++) {
    send(capture, start + i * 300, psn + i);
    ack(capture, start + i * 300 + 100, psn + i);
  }
  return capture;
}

/** A SEND of native InfiniBand from LID 1 to LID 2: LRH, BTH, 64 bytes, ICRC, VCRC. */
function nativeFrame(psn: number, icrc: number): Uint8Array {
  const frame = new Uint8Array(8 + 12 + 64 + 4 + 2);
  frame.set([0x00, 0x02, 0, 2, 0, (frame.length - 2) / 4, 0, 1, 0x04, 0x40, 0xff, 0xff, 0, 0, 0, 0x12]);
  setU32(frame, 16, psn);
  setU32(frame, 84, icrc);
  return frame;
}

/** The verdict of a capture; it fits into 20 words, and its chain goes forwards. */
function verdictOf(capture: CaptureBuilder) {
  const { verdict, connections, findings } = capture.finish();
  for (const { text, chain } of [verdict, ...connections.map((each) => each.verdict)]) {
    expect(wordsOf(text), text).toBeLessThanOrEqual(20);
    const frames = chain.map(({ frame }) => frame!);
    expect(frames).toEqual(frames.toSorted((x, y) => x - y));
  }
  return { ...verdict, explained: findings.filter(({ isExplained }) => isExplained).map(({ kind }) => kind) };
}

test('a host that stood still: silence, then an answer to each copy', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (const time of [10, 80, 150, 220, 290, 360]) send(capture, time * MS, 104);
  for (let i = 0; i < 6; i++) ack(capture, 382 * MS + i * 2000, 104);
  talk(capture, 400 * MS, 105);
  const verdict = verdictOf(capture);
  expect(verdict).toMatchObject({ kind: 'host-stood-still', certainty: 'likely', culprit: B });
  expect(verdict.text).toBe(
    `${B} stood still for 372 ms; it answered everything afterwards; nothing was lost.`,
  );
  expect(verdict.chain.map(({ frame }) => frame)).toEqual([9, 10, 15, 20]);
  expect(verdict.explained).toEqual(expect.arrayContaining(['retransmissions', 'stalls']));
});

test('the same with one answer only: it is not known that the first copies arrived', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (const time of [10, 80, 150, 220, 290, 360]) send(capture, time * MS, 104);
  ack(capture, 382 * MS, 104);
  talk(capture, 400 * MS, 105);
  const verdict = verdictOf(capture);
  expect(verdict).toMatchObject({ kind: 'packets-lost' });
  expect(verdict.hint).toContain('a capture at the other end shows which it is');
});

test('a host that talks to others meanwhile does not stand still', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  send(capture, 80 * MS, 104);
  capture.packet(81 * MS, 'b', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 });
  for (const time of [150, 220]) send(capture, time * MS, 104);
  for (let i = 0; i < 4; i++) ack(capture, 240 * MS + i * 200, 104);
  talk(capture, 250 * MS, 105);
  expect(verdictOf(capture)).toMatchObject({ kind: 'spurious-retransmission', culprit: B });
});

test('a timer that fires just after the answer has passed: nothing was lost', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  ack(capture, 18 * MS, 104);
  send(capture, 18.4 * MS, 104);
  ack(capture, 18.6 * MS, 104);
  talk(capture, 20 * MS, 105);
  expect(verdictOf(capture)).toMatchObject({ kind: 'spurious-retransmission', certainty: 'certain' });
});

test('damage at frame 10, the NAK, the retransmission: one chain, and the finding of wrong ICRCs is folded', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104);
  send(capture, 2010, 105, { badIcrc: true });
  send(capture, 2020, 106);
  capture.packet(2100, 'b', 'RC_ACKNOWLEDGE', { psn: 105, syndrome: 0x60 });
  for (const [time, psn] of [
    [2200, 105],
    [2210, 106],
  ] as const)
    send(capture, time, psn);
  ack(capture, 2300, 106);
  const verdict = verdictOf(capture);
  expect(verdict).toMatchObject({ kind: 'damaged-on-the-way', culprit: 'network' });
  expect(verdict.chain.map(({ frame }) => frame)).toEqual([10, 12, 13, 15]);
  expect(verdict.explained).toEqual(expect.arrayContaining(['icrc-bad', 'retransmissions']));
});

test('an ACK that is damaged: the packets of the responder were, and not those of the requester', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  capture.packet(10.1 * MS, 'b', 'RC_ACKNOWLEDGE', { psn: 104, badIcrc: true });
  send(capture, 77.2 * MS, 104);
  ack(capture, 77.3 * MS, 104);
  expect(verdictOf(talk(capture, 100 * MS, 105)).text).toContain(
    `The path from ${B} to the capture point damaged packets`,
  );
});

test('damage in both directions: neither is named', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  capture.packet(10.1 * MS, 'b', 'RC_ACKNOWLEDGE', { psn: 104, badIcrc: true });
  send(capture, 77.2 * MS, 104);
  ack(capture, 77.3 * MS, 104);
  send(capture, 90 * MS, 105, { badIcrc: true });
  send(capture, 90.01 * MS, 106);
  capture.packet(90.11 * MS, 'b', 'RC_ACKNOWLEDGE', { psn: 105, syndrome: 0x60 });
  send(capture, 90.2 * MS, 105);
  send(capture, 90.21 * MS, 106);
  ack(capture, 90.3 * MS, 105);
  ack(capture, 90.31 * MS, 106);
  expect(verdictOf(talk(capture, 200 * MS, 107)).text).toContain(
    `The path between ${A} and ${B} damaged packets (wrong ICRC); this explains both recoveries`,
  );
});

test('an RNR NAK explains the copy that it asked for, and no timeout before or behind it', () => {
  const notReady = (capture: CaptureBuilder, time: number) =>
    capture.packet(time, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome: 0x2c });
  const behind = talk(new CaptureBuilder(), 0, 100);
  send(behind, 10 * MS, 104);
  notReady(behind, 10.1 * MS);
  for (const time of [10.9, 78]) send(behind, time * MS, 104);
  ack(behind, 78.1 * MS, 104);
  const before = talk(new CaptureBuilder(), 0, 100);
  for (const time of [10, 77.2]) send(before, time * MS, 104);
  notReady(before, 77.3 * MS);
  send(before, 78.1 * MS, 104);
  ack(before, 78.2 * MS, 104);
  for (const capture of [behind, before]) {
    const { text, also } = verdictOf(talk(capture, 100 * MS, 105));
    const all = [text, ...also.map((each) => each.text)].join(' ');
    expect(all).toContain('no receive posted 1 time (RNR)');
    expect(all).toContain('1 of 2 recoveries');
  }
});

test('a sequence NAK right behind an RNR NAK of the same PSN is no loss', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (const psn of [104, 105]) send(capture, 10 * MS + psn, psn);
  for (const [i, syndrome] of [0x2c, 0x60].entries())
    capture.packet(10.3 * MS + i, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome });
  for (const psn of [104, 105]) send(capture, 10.4 * MS + psn, psn);
  for (const psn of [104, 105]) ack(capture, 11.9 * MS + psn, psn);
  const { kind, also } = verdictOf(talk(capture, 100 * MS, 107));
  expect([kind, ...also.map((each) => each.kind)]).toEqual(['rnr']);
});

test('a chain has the frames of its own cause, in an episode that another one began', () => {
  const refused = talk(new CaptureBuilder(), 0, 100); // Frames 1 to 8.
  for (const time of [10, 77.2]) send(refused, time * MS, 104);
  for (const [i, time] of [77.3, 78.2, 79.1].entries()) {
    refused.packet(time * MS, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome: 0x2c }); // The first is frame 11.
    send(refused, (78.1 + 0.9 * i) * MS, 104);
  }
  ack(refused, 80 * MS, 104);
  const rnr = verdictOf(talk(refused, 100 * MS, 105));
  expect(rnr.kind).toBe('rnr');
  expect(rnr.chain.map(({ frame }) => frame)).toEqual(expect.arrayContaining([11, 12]));
  const damaged = talk(new CaptureBuilder(), 0, 100);
  send(damaged, 10 * MS, 104);
  damaged.packet(10.1 * MS, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome: 0x2c });
  for (const time of [10.9, 78, 145, 212]) {
    send(damaged, time * MS, 104);
    damaged.packet(time * MS + 100, 'b', 'RC_ACKNOWLEDGE', { psn: 104, badIcrc: time < 200 }); // The first is frame 12.
  }
  const damage = verdictOf(talk(damaged, 300 * MS, 105));
  expect(damage.kind).toBe('damaged-on-the-way');
  expect(damage.chain.map(({ frame }) => frame)).toContain(12);
});

test('a packet that came late, the NAK for it, the needless retransmission', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104, { id: 300 });
  send(capture, 2020, 106, { id: 302 });
  capture.packet(2050, 'b', 'RC_ACKNOWLEDGE', { psn: 105, syndrome: 0x60 });
  send(capture, 2060, 105, { id: 301 });
  for (const [psn, id] of [
    [105, 303],
    [106, 304],
  ] as const)
    send(capture, 2100 + psn, psn, { id });
  ack(capture, 2300, 106);
  expect(verdictOf(capture)).toMatchObject({ kind: 'reordering', culprit: 'network' });
});

test('a NAK, and then no answer to any copy: the timeouts are the silence, not more losses on the way', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104);
  send(capture, 2010, 105);
  capture.packet(2100, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome: 0x60 });
  send(capture, 2200, 104);
  send(capture, 2210, 105);
  for (let i = 1; i <= 8; i++) send(capture, 2200 + i * 67 * MS, 104);
  capture.packet(3000 * MS, 'a', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 });
  const verdict = verdictOf(capture);
  expect(verdict).toMatchObject({ kind: 'retries-exceeded', culprit: B });
  expect(verdict.also.map(({ text }) => text)).toEqual([
    `The path between ${B} and the capture point lost or damaged requests; this explains 1 of 9 recoveries.`,
  ]);
});

test('both ends go back for losses: one cause, one sum, one place for each end', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (const [from, to, start] of [
    ['a', 'b', 2000],
    ['b', 'a', 4000],
  ] as const) {
    const [first, second] = from === 'a' ? [104, 105] : [500, 501];
    const one = (time: number, psn: number) =>
      capture.packet(time, from, 'RC_SEND_ONLY', { psn, payload: 64, ackReq: true, migReq: false });
    one(start, first);
    one(start + 10, second);
    capture.packet(start + 100, to, 'RC_ACKNOWLEDGE', { psn: first, syndrome: 0x60 });
    one(start + 200, first);
    one(start + 210, second);
    capture.packet(start + 300, to, 'RC_ACKNOWLEDGE', { psn: second });
  }
  const { verdict, overview, findings } = capture.finish();
  expect(verdict.text).toBe(
    `The path between ${A} and ${B} lost or damaged requests in both directions; this explains both recoveries.`,
  );
  expect(verdict.also).toEqual([]);
  expect(overview.lostNear).toEqual([
    { host: B, packets: 1 },
    { host: A, packets: 1 },
  ]);
  // A finding is about one end.
  const lost = findings.filter(({ kind }) => kind === 'packets-lost');
  expect(lost.map(({ statement }) => statement)).toEqual([
    'the path between the responder and the capture point lost or damaged requests: 1 recovery',
    'the path between the responder and the capture point lost or damaged requests: 1 recovery',
  ]);
});

test('a responder that answers one message late, and the others at once', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104);
  ack(capture, 62 * MS, 104);
  talk(capture, 63 * MS, 105);
  expect(verdictOf(capture)).toMatchObject({
    kind: 'slow-responder',
    culprit: B,
    text: `${B} answered late: up to 60 ms, at best 100 µs; nothing was retransmitted.`,
  });
});

test('a late answer, and retransmissions at another time: nothing was retransmitted meanwhile', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104);
  ack(capture, 62 * MS, 104);
  for (const time of [70, 137.2]) send(capture, time * MS, 105);
  ack(capture, 137.3 * MS, 105);
  const { also } = verdictOf(talk(capture, 150 * MS, 106));
  expect(also.map(({ text }) => text).join()).toContain('nothing was retransmitted meanwhile.');
});

test('path MTU: a WRITE whose long FIRST is refused; not after one of that length was taken', () => {
  const write = (capture: CaptureBuilder, time: number, psn: number) =>
    capture
      .packet(time, 'a', 'RC_RDMA_WRITE_FIRST', { psn, payload: 4096, length: 8192 })
      .packet(time + 1, 'a', 'RC_RDMA_WRITE_LAST', { psn: psn + 1, payload: 4096, ackReq: true });
  const refuse = (capture: CaptureBuilder, time: number, psn: number) =>
    capture.packet(time, 'b', 'RC_ACKNOWLEDGE', { psn, syndrome: 0x61 });
  expect(verdictOf(refuse(write(talk(new CaptureBuilder(), 0, 100), 2000, 104), 2100, 104))).toMatchObject({
    kind: 'path-mtu',
    culprit: 'network',
  });
  const taken = write(talk(new CaptureBuilder(), 0, 100), 2000, 104);
  ack(taken, 2100, 105);
  expect(verdictOf(refuse(write(taken, 3000, 106), 3100, 106))).toMatchObject({
    kind: 'nak-invalid-request',
  });
});

test('a black hole: short packets are answered, long ones never', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (let i = 0; i < 8; i++) send(capture, (10 + i * 67) * MS, 104, { payload: 4096, migReq: true });
  expect(verdictOf(capture)).toMatchObject({ kind: 'path-mtu', certainty: 'likely', culprit: 'network' });
  const short = talk(new CaptureBuilder(), 0, 100);
  for (let i = 0; i < 8; i++) send(short, (10 + i * 67) * MS, 104, { migReq: true });
  expect(verdictOf(short)).toMatchObject({ kind: 'retries-exceeded', culprit: B });
});

/** An ICMP error about a RoCE packet from `a`: type 3, its code and the MTU. */
function icmp(code: number, mtu: number, by: readonly number[]): Uint8Array {
  const inner = frameOf('a', 4, { psn: 1, payload: 8 });
  const frame = new Uint8Array(28 + 36);
  frame.set([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, ...by, 10, 0, 0, 1, 3, code]);
  setU16(frame, 2, frame.length);
  setU16(frame, 26, mtu);
  frame.set(inner.subarray(0, 36), 28);
  return frame;
}

test('ICMP errors: too long for a router, and a host without RoCE', () => {
  const unanswered = (error: Uint8Array) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 8; i++) {
      send(capture, i * 67 * MS, 100, { payload: 4096, migReq: true });
      capture.other(i * 67 * MS + 50, error);
    }
    return verdictOf(capture);
  };
  expect(unanswered(icmp(4, 1500, [10, 0, 0, 254]))).toMatchObject({
    kind: 'icmp-error',
    certainty: 'certain',
    culprit: '10.0.0.254',
    text: expect.stringContaining('MTU 1500'),
  });
  expect(unanswered(icmp(3, 0, [10, 0, 0, 2]))).toMatchObject({
    culprit: B,
    text: `${B} does not listen for RoCE: it answers UDP port 4791 with ICMP port unreachable.`,
  });
});

test('an ICMP error about other traffic does not count', () => {
  const error = icmp(3, 0, [10, 0, 0, 2]);
  setU16(error, 28 + 22, 53);
  const { findings } = talk(new CaptureBuilder(), 0, 100).other(5000, error).finish();
  expect(findings.map(({ kind }) => kind)).not.toContain('icmp-error');
});

test('a TTL of 1 explains silence, and is nothing where answers come', () => {
  const silent = new CaptureBuilder();
  for (let i = 0; i < 8; i++) send(silent, i * 67 * MS, 100, { ttl: 1, migReq: true });
  expect(verdictOf(silent)).toMatchObject({ kind: 'ttl-too-small', certainty: 'likely', culprit: A });
  // One direction of a connection that goes on: its answers are only not in the capture.
  const oneWay = new CaptureBuilder();
  for (const [i, psn] of [100, 101, 101, 102, 103, 104, 105].entries())
    send(oneWay, i * 67 * MS, psn, { ttl: 1, migReq: true });
  expect(verdictOf(oneWay).kind).not.toBe('ttl-too-small');
  const answered = new CaptureBuilder();
  for (let i = 0; i < 4; i++) {
    send(answered, i * 300, 100 + i, { ttl: 1 });
    ack(answered, i * 300 + 100, 100 + i);
  }
  expect(verdictOf(answered)).toMatchObject({ kind: 'healthy' });
});

test('data and ACKs of different classes; CNPs of their own class are right', () => {
  const marked = (dscpOfAcks: number, dscpOfCnps: number) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 4; i++) {
      send(capture, i * 300, 100 + i, { dscp: 26 });
      capture.packet(i * 300 + 100, 'b', 'RC_ACKNOWLEDGE', { psn: 100 + i, dscp: dscpOfAcks });
    }
    return verdictOf(capture.packet(1500, 'b', 'CNP', { dscp: dscpOfCnps, payload: 16 }));
  };
  expect(marked(0, 0)).toMatchObject({
    kind: 'traffic-class',
    text: expect.stringContaining('ACKs and CNPs'),
  });
  expect(marked(26, 48).kind).not.toBe('traffic-class');
});

test('a requester that stops inside a message after a crossing ACK', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  capture.packet(2000, 'a', 'RC_SEND_FIRST', { psn: 104, payload: 256, ackReq: true, migReq: false });
  ack(capture, 10 * MS, 104);
  capture.packet(10.3 * MS, 'a', 'RC_SEND_FIRST', { psn: 104, payload: 256, ackReq: true, migReq: false });
  ack(capture, 10.5 * MS, 104);
  capture.packet(3000 * MS, 'a', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 });
  const { connections } = capture.finish();
  expect(connections[0].verdict).toMatchObject({
    kind: 'requester-stopped',
    certainty: 'likely',
    culprit: A,
  });
});

test('an ICRC that is never right is an error of its connection, with its mistake', () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 4; i++) {
    send(capture, i * 300, 100 + i, { badIcrc: true });
    ack(capture, i * 300 + 100, 100 + i);
  }
  const { connections } = capture.finish();
  expect(connections[0]).toMatchObject({
    verdict: { kind: 'icrc-never-right', severity: 'error', culprit: 'network' },
    aToB: { packets: 4, icrcBad: 4, requests: 4 },
  });
});

test('native InfiniBand with an ICRC of 0: that is the mistake, and the only one that is tried', () => {
  for (const [icrc, text] of [
    [0, 'its ICRC is 0'],
    [0x1234, 'why is not known'],
  ] as const) {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 4; i++) capture.other(i * 100, nativeFrame(100 + i, icrc), LinkType.INFINIBAND);
    const { verdict } = capture.finish();
    expect(verdict.kind).toBe('icrc-never-right');
    expect(verdict.text).toContain(text);
  }
});

test('connection requests with wrong ICRCs: the sender is the culprit, not the peer that drops them', () => {
  const capture = new CaptureBuilder();
  const data = encodeCm({
    name: 'REQ',
    transactionId: 5n,
    localCommId: 0x1a,
    serviceId: 0x0106_1c06n,
    localQpn: 0x11,
  });
  const request = frameOf('a', 0x64, { psn: 1, destQp: 1, payload: 256, data, badIcrc: true });
  for (let i = 0; i < 5; i++) capture.other(i * 4000 * MS, request);
  expect(verdictOf(capture)).toMatchObject({ kind: 'icrc-never-right', culprit: expect.any(String) });
});

test('one damaged packet among right ones makes no connection', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 5, { badIcrc: true, destQp: 0x999 });
  const { connections, unconnected } = talk(capture, 100, 100).finish();
  expect(connections.length).toBe(1);
  expect(unconnected).toBe(1);
});

test('the ICRC was computed with another address (NAT): which one', () => {
  const capture = new CaptureBuilder();
  for (const [i, payload] of [64, 128, 256].entries()) {
    const frame = frameOf('a', 4, { psn: 100 + i, payload, id: 100 + i });
    frame.set([10, 0, 0, 9], 12);
    setU16(frame, 10, 0);
    let sum = 0;
    for (let at = 0; at < 20; at += 2) sum += frame[at] * 256 + frame[at + 1];
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    setU16(frame, 10, ~sum & 0xffff);
    capture.other(i * 100, frame);
  }
  expect(verdictOf(capture)).toMatchObject({
    kind: 'icrc-never-right',
    certainty: 'certain',
    text: expect.stringContaining('its source address was 10.0.0.1 (NAT)'),
  });
});

test('other traffic on the port of RoCE is no connection', () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 6; i++) {
    const frame = frameOf('a', 4, { psn: 0x818081 + i, payload: 64, badIcrc: true });
    setU24(frame, 28 + 1, 0x858180);
    frame[28 + 4] = 0x3f;
    capture.other(i * 100, frame);
  }
  const { connections, verdict } = capture.finish();
  expect(connections).toEqual([]);
  expect(verdict).toMatchObject({ kind: 'nothing-decoded', certainty: 'likely' });
});

test.each([
  [false, /shows which it is\.$/],
  [
    true,
    /Seen on the way to the capture point: 1 packet damaged \(wrong ICRC\)\. Behind it the same may happen\.$/,
  ],
])('losses behind the capture point, with wrong ICRCs in front of it: %s', (badIcrc, hint) => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  if (badIcrc) send(capture, 1900, 150, { badIcrc });
  for (const psn of [104, 105, 106]) send(capture, 2000 + psn, psn);
  capture.packet(2200, 'b', 'RC_ACKNOWLEDGE', { psn: 105, syndrome: 0x60 });
  for (const psn of [105, 106]) send(capture, 2300 + psn, psn);
  ack(capture, 2500, 106);
  expect(verdictOf(capture)).toMatchObject({ kind: 'packets-lost', hint: expect.stringMatching(hint) });
});

test.each([
  [0, 'certain', /: 1 recovery$/],
  [4, 'likely', /: all 5 recoveries, 1 of them for certain$/],
])(
  'a NAK for a lost packet, and %i timeouts: the sum is as certain as the least of them',
  (timeouts, certainty, share) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (const [time, psn] of [
      [2000, 104],
      [2010, 105],
    ] as const)
      send(capture, time, psn);
    capture.packet(2100, 'b', 'RC_ACKNOWLEDGE', { psn: 104, syndrome: 0x60 });
    for (const psn of [104, 105]) send(capture, 2200 + psn, psn);
    ack(capture, 2400, 105);
    for (let i = 0; i < timeouts; i++) {
      const time = (10 + 100 * i) * MS;
      send(capture, time, 106 + i);
      send(capture, time + 67_109, 106 + i);
      ack(capture, time + 67_209, 106 + i);
    }
    capture.packet(2000 * MS, 'a', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 });
    const { verdict, findings } = capture.finish();
    expect(verdict).toMatchObject({ kind: 'packets-lost', certainty });
    const finding = findings.find(({ kind }) => kind === 'packets-lost');
    expect(finding?.statement).toMatch(share);
  },
);
