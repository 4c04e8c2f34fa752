import { OPCODES, type OpcodeName } from '@node-roce/wire';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CaptureBuilder, type PacketOptions, QP } from '../../testing/capture-builder.ts';
import type { Grade, RetransmitCause } from './analysis.ts';

const KIB = 1024;

/** A WRITE of `packets` packets at a path MTU of 1024 from `psn` on, all sent at once. */
function write(
  capture: CaptureBuilder,
  time: number,
  psn: number,
  packets: number,
  options: PacketOptions = {},
): CaptureBuilder {
  for (let i = 0; i < packets; i++) {
    const [first, last] = [i === 0, i === packets - 1];
    const opcode = first
      ? last
        ? 'RC_RDMA_WRITE_ONLY'
        : 'RC_RDMA_WRITE_FIRST'
      : last
        ? 'RC_RDMA_WRITE_LAST'
        : 'RC_RDMA_WRITE_MIDDLE';
    const packet = { psn: (psn + i) & 0xff_ffff, payload: KIB, ackReq: last, length: packets * KIB };
    capture.packet(time, 'a', opcode, { ...packet, ...options });
  }
  return capture;
}

const ack = (
  capture: CaptureBuilder,
  time: number,
  psn: number,
  options: PacketOptions = {},
): CaptureBuilder => capture.packet(time, 'b', 'RC_ACKNOWLEDGE', { psn, ...options });

describe('messages', () => {
  test('a WRITE: size, packets, latency to its ACK', () => {
    const capture = ack(write(new CaptureBuilder(), 0, 7, 3), 40, 9);
    const { connections } = capture.finish();
    expect(capture.messages).toMatchObject([
      {
        id: 1,
        connection: 1,
        from: 'a',
        operation: 'RDMA_WRITE',
        bytes: 3 * KIB,
        firstPsn: 7,
        lastPsn: 9,
        packets: 3,
        latency: 40_000,
        outcome: 'completed',
      },
    ]);
    expect(connections).toMatchObject([{ a: { qpn: QP.a }, b: { qpn: QP.b }, pathMtu: KIB }]);
    expect(connections[0]).toMatchObject({ pairing: 'certain', ackRoundTrip: { count: 1, p50: 40_000 } });
  });

  test('across the end of the PSNs', () => {
    const capture = ack(write(new CaptureBuilder(), 0, 0xff_fffe, 4), 10, 1);
    write(capture, 20, 2, 1);
    ack(capture, 30, 2);
    capture.finish();
    expect(capture.messages.map(({ lastPsn, outcome }) => [lastPsn, outcome])).toEqual([
      [1, 'completed'],
      [2, 'completed'],
    ]);
  });

  test('a capture that starts and ends inside of messages', () => {
    const capture = new CaptureBuilder();
    capture.packet(0, 'a', 'RC_SEND_MIDDLE', { psn: 5, payload: KIB });
    capture.packet(1, 'a', 'RC_SEND_LAST', { psn: 6, payload: 10, ackReq: true });
    ack(capture, 10, 6);
    capture.packet(20, 'a', 'RC_SEND_FIRST', { psn: 7, payload: KIB });
    capture.finish();
    expect(capture.messages.map(({ bytes, outcome }) => [bytes, outcome])).toEqual([
      [undefined, 'incomplete'],
      [undefined, 'incomplete'],
    ]);
  });

  test('a NAK that ends the queue pair: the message fails, those behind it are flushed', () => {
    const capture = write(write(write(new CaptureBuilder(), 0, 0, 1), 1, 1, 2), 2, 3, 1);
    ack(capture, 10, 1, { syndrome: 0x62 });
    const { findings, connections } = capture.finish();
    expect(capture.messages.map(({ outcome, failure }) => failure ?? outcome)).toEqual([
      'completed',
      'remote-access-error',
      'flushed',
    ]);
    expect(connections[0].bToA.naks).toEqual({ 'remote-access-error': 1 });
    expect(findings[0]).toMatchObject({ kind: 'nak-remote-access-error', severity: 'error', frames: [5] });
  });

  test('a sequence NAK with the reserved bit set is one, and ends nothing', () => {
    const capture = write(new CaptureBuilder(), 0, 0, 3);
    ack(capture, 10, 1, { syndrome: 0xe0 });
    write(capture, 15, 1, 2);
    ack(capture, 30, 2);
    const { findings } = capture.finish();
    expect(capture.messages.map(({ failure, outcome }) => failure ?? outcome)).toEqual(['completed']);
    expect(findings.filter(({ severity }) => severity === 'error')).toEqual([]);
  });

  test('a READ that a busy requester asks again for, after it sent something new, is completed', () => {
    const capture = new CaptureBuilder();
    const read = (time: number, psn: number, length: number) =>
      capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length, ackReq: true });
    const answer = (time: number, psn: number, part: 'FIRST' | 'MIDDLE' | 'LAST' | 'ONLY') =>
      capture.packet(time, 'b', `RC_RDMA_READ_RESPONSE_${part}`, { psn, payload: KIB });
    read(0, 0, 4 * KIB);
    answer(10, 0, 'FIRST');
    answer(10, 2, 'MIDDLE');
    // It was posted before the answers were looked at.
    read(2100, 4, KIB);
    read(5700, 1, 3 * KIB);
    answer(5720, 1, 'FIRST');
    answer(5721, 2, 'MIDDLE');
    answer(5722, 3, 'LAST');
    answer(5730, 4, 'ONLY');
    capture.finish();
    expect(capture.messages.map(({ bytes, outcome }) => [bytes, outcome])).toEqual([
      [4 * KIB, 'completed'],
      [KIB, 'completed'],
    ]);
  });

  test('READ and atomic: round trips', () => {
    const capture = new CaptureBuilder();
    capture.packet(0, 'a', 'RC_RDMA_READ_REQUEST', { psn: 1, length: 2000, ackReq: true });
    capture.packet(20, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 1, payload: KIB });
    capture.packet(25, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 2, payload: 976 });
    capture.packet(30, 'a', 'RC_FETCH_ADD', { psn: 3, ackReq: true });
    capture.packet(40, 'b', 'RC_ATOMIC_ACKNOWLEDGE', { psn: 3 });
    const { connections } = capture.finish();
    expect(capture.messages.map(({ operation, bytes, latency }) => [operation, bytes, latency])).toEqual([
      ['RDMA_READ', 2000, 25_000],
      ['FETCH_ADD', 8, 10_000],
    ]);
    expect(connections[0].readRoundTrip).toMatchObject({ count: 2, min: 10_000, max: 25_000 });
  });
});

describe('causes', () => {
  /** One packet more, so that the directions are paired. */
  const paired = () => ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);

  const cases: [RetransmitCause, Grade, string, (capture: CaptureBuilder) => void][] = [
    [
      'sequence-nak',
      'certain',
      'a NAK for the PSN',
      (capture) => {
        write(capture, 100, 1, 3);
        ack(capture, 110, 2, { syndrome: 0x60 });
        capture.packet(115, 'a', 'RC_RDMA_WRITE_MIDDLE', { psn: 2, payload: KIB });
      },
    ],
    [
      'rnr',
      'certain',
      'the wait of an RNR NAK is over',
      (capture) => {
        write(capture, 100, 1, 1);
        ack(capture, 110, 1, { syndrome: 0x2c });
        write(capture, 755, 1, 1);
      },
    ],
    [
      'implied-nak',
      'certain',
      'an atomic is answered, the READ before it is not',
      (capture) => {
        capture.packet(100, 'a', 'RC_RDMA_READ_REQUEST', { psn: 1, length: 100, ackReq: true });
        capture.packet(101, 'a', 'RC_FETCH_ADD', { psn: 2, ackReq: true });
        capture.packet(110, 'b', 'RC_ATOMIC_ACKNOWLEDGE', { psn: 2 });
        capture.packet(115, 'a', 'RC_RDMA_READ_REQUEST', { psn: 1, length: 100, ackReq: true });
      },
    ],
    [
      'timeout',
      'certain',
      '4.096 µs · 2^14 of silence',
      (capture) => write(write(capture, 100, 1, 1), 100 + 67_108.864, 1, 1),
    ],
    ['probe', 'certain', '8 ms of silence', (capture) => write(write(capture, 100, 1, 1), 8100, 1, 1)],
    [
      'probe',
      'certain',
      '60 µs of silence: too early for any other timer',
      (capture) => write(write(capture, 100, 1, 1), 160, 1, 1),
    ],
    ['probe', 'likely', '5 ms of silence', (capture) => write(write(capture, 100, 1, 1), 5100, 1, 1)],
    [
      'timeout',
      'likely',
      '4.3 ms of silence, a timeout of 10 within 3 %',
      (capture) => write(write(capture, 100, 1, 1), 4400, 1, 1),
    ],
    ['unknown', 'not-shown', '40 ms of silence', (capture) => write(write(capture, 100, 1, 1), 40_100, 1, 1)],
    [
      'timeout',
      'certain',
      'silence of a sender that has no other timer',
      (capture) => {
        write(capture, 100, 1, 1, { migReq: false });
        write(capture, 70_100, 1, 1, { migReq: false });
      },
    ],
    [
      'timeout',
      'likely',
      'a NAK, but so late that it may have been the timer',
      (capture) => {
        write(capture, 100, 1, 2);
        ack(capture, 110, 1, { syndrome: 0x60 });
        write(capture, 100 + 67_108.864, 1, 1);
      },
    ],
    [
      'timeout',
      'likely',
      'again what the capture has an answer to',
      (capture) => {
        ack(write(capture, 100, 1, 1), 110, 1);
        write(capture, 100 + 67_108.864, 1, 1);
      },
    ],
  ];

  test.each(cases)('%s, %s: %s', (cause, grade, _why, play) => {
    const capture = paired();
    play(capture);
    const { connections } = capture.finish();
    expect(capture.causes).toEqual([cause]);
    const { retransmitted, retransmitCauses, retransmitGrades, goBacks, goBackCauses } = connections[0].aToB;
    expect([retransmitted, retransmitCauses[cause], retransmitGrades[grade], goBacks]).toEqual([1, 1, 1, 1]);
    expect(goBackCauses[cause][grade]).toBe(1);
    expect(connections[0].recoveries).toMatchObject([{ from: 'a', cause, grade, packets: 1 }]);
  });

  test('a probe within 100 µs is no copy, though there are no Identifications', () => {
    const options = { id: false as const };
    const capture = ack(write(new CaptureBuilder(), 0, 0, 1, options), 5, 0, options);
    write(capture, 100, 1, 1, options);
    write(capture, 160, 1, 1, options);
    const { connections } = capture.finish();
    expect(capture.causes).toEqual(['probe']);
    expect(connections[0].aToB).toMatchObject({ retransmitted: 1, repeatedFrames: 0 });
  });

  test('packets that follow a retransmission have its cause', () => {
    const capture = write(paired(), 100, 1, 6);
    ack(capture, 110, 2, { syndrome: 0x60 });
    write(capture, 120, 2, 5);
    write(capture, 121, 7, 1);
    const { connections } = capture.finish();
    expect(capture.causes).toEqual(new Array(5).fill('sequence-nak'));
    expect(connections[0].aToB).toMatchObject({ goBacks: 1, retransmitted: 5, retransmittedBytes: 5 * KIB });
  });

  test('one direction only: it is not known why', () => {
    const capture = write(write(new CaptureBuilder(), 0, 0, 2), 70_000, 0, 2);
    const { connections, findings } = capture.finish();
    expect(capture.causes).toEqual(['unknown', 'unknown']);
    expect(connections).toMatchObject([{ a: { qpn: -1 }, b: { qpn: QP.b }, pairing: 'unpaired' }]);
    expect(capture.messages).toMatchObject([{ outcome: 'incomplete', bytes: 2 * KIB, latency: undefined }]);
    expect(findings.map(({ kind }) => kind)).toContain('one-direction');
  });
});

describe('READ responses that came early', () => {
  /** Two READs of three responses each; of the first one the second response is lost. */
  const lost = () => {
    const capture = new CaptureBuilder();
    const read = { length: 3 * KIB, ackReq: true };
    capture.packet(0, 'a', 'RC_RDMA_READ_REQUEST', { psn: 0, ...read });
    capture.packet(0, 'a', 'RC_RDMA_READ_REQUEST', { psn: 3, ...read });
    capture.packet(10, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 0, payload: KIB });
    capture.packet(12, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 2, payload: KIB });
    capture.packet(13, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 3, payload: KIB });
    capture.packet(14, 'b', 'RC_RDMA_READ_RESPONSE_MIDDLE', { psn: 4, payload: KIB });
    capture.packet(15, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 5, payload: KIB });
    return capture;
  };
  const ends = (capture: CaptureBuilder) =>
    capture.messages.map(({ outcome, ackRoundTrip }) => [
      outcome,
      ackRoundTrip === undefined ? undefined : ackRoundTrip / 1000,
    ]);

  test('count once what was missing is there, of a requester that asked for that alone', () => {
    const capture = lost();
    capture.packet(15, 'a', 'RC_RDMA_READ_REQUEST', { psn: 1, length: KIB, ackReq: true });
    capture.packet(25, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn: 1, payload: KIB });
    const { connections } = capture.finish();
    expect(capture.causes).toEqual(['implied-nak']);
    expect(connections[0].aToB).toMatchObject({ retransmitted: 1 });
    expect(ends(capture)).toEqual([
      ['completed', 10],
      ['completed', 25],
    ]);
  });

  test('count at the end of the capture, though one before them never came', () => {
    const capture = new CaptureBuilder();
    const read = { length: KIB, ackReq: true };
    for (const psn of [0, 1, 2]) capture.packet(0, 'a', 'RC_RDMA_READ_REQUEST', { psn, ...read });
    for (const psn of [1, 2]) capture.packet(10, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn, payload: KIB });
    capture.finish();
    expect(capture.messages.map(({ outcome }) => outcome)).toEqual(['incomplete', 'completed', 'completed']);
  });

  test('do not count of a requester that asks for all again', () => {
    const capture = lost();
    capture.packet(15, 'a', 'RC_RDMA_READ_REQUEST', { psn: 1, length: 2 * KIB, ackReq: true });
    capture.packet(15, 'a', 'RC_RDMA_READ_REQUEST', { psn: 3, length: 3 * KIB, ackReq: true });
    capture.packet(25, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 1, payload: KIB });
    capture.packet(26, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 2, payload: KIB });
    for (const [i, name] of (['FIRST', 'MIDDLE', 'LAST'] as const).entries()) {
      capture.packet(27 + i, 'b', `RC_RDMA_READ_RESPONSE_${name}`, { psn: 3 + i, payload: KIB });
    }
    capture.finish();
    expect(capture.causes).toEqual(['implied-nak', 'implied-nak']);
    expect(ends(capture)).toEqual([
      ['completed', 11],
      ['completed', 14],
    ]);
  });
});

describe('artefacts of the capture', () => {
  test.each([
    ['the same Identification', [77, 78, 79]],
    ['IPv6, a µs later', [false, false, false]],
  ])('a mirror shows each frame twice: %s', (_how, ids) => {
    const capture = new CaptureBuilder();
    ids.forEach((id, psn) => {
      const packet = { psn, payload: KIB, ackReq: true, length: KIB, id: id as number | false };
      capture.each([10 * psn, 10 * psn + 1], 'a', 'RC_RDMA_WRITE_ONLY', packet);
    });
    const { connections, findings } = capture.finish();
    expect(findings.find(({ kind }) => kind === 'repeated-frames')?.hint).toContain('mirror of two ports');
    expect(connections[0].aToB).toMatchObject({
      packets: 3,
      requests: 3,
      repeatedFrames: 3,
      retransmitted: 0,
    });
    expect(connections[0].aToB.bytes).toBe(3 * KIB);
  });

  test('a network that duplicates some packets and a mirror of some ports are not distinguished', () => {
    const capture = write(new CaptureBuilder(), 0, 0, 8);
    capture.packet(1, 'a', 'RC_RDMA_WRITE_MIDDLE', { psn: 4, payload: KIB, id: 104 });
    const { connections, findings } = ack(capture, 20, 7).finish();
    expect(connections[0].aToB).toMatchObject({ packets: 8, repeatedFrames: 1, retransmitted: 0 });
    expect(findings).toMatchObject([
      { kind: 'repeated-frames', text: expect.stringContaining('1 duplicate frame') },
    ]);
    expect(findings[0].hint).toContain('network that duplicates');
  });

  test('a mirror is late by three ACKs of one PSN, which a burst of duplicates drew', () => {
    const capture = write(new CaptureBuilder(), 0, 0, 1);
    for (const id of [300, 301, 302, 300, 301, 302]) ack(capture, 10, 0, { id });
    const { connections } = capture.finish();
    expect(connections[0].bToA).toMatchObject({ packets: 3, acks: 3, repeatedFrames: 3 });
  });

  test('acknowledged but not seen: missed by the capture, no loss of the network', () => {
    const capture = ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);
    capture.packet(10, 'a', 'RC_RDMA_WRITE_FIRST', { psn: 1, payload: KIB, length: 3 * KIB });
    capture.packet(11, 'a', 'RC_RDMA_WRITE_LAST', { psn: 3, payload: KIB, ackReq: true });
    ack(capture, 20, 3);
    const { connections, findings } = capture.finish();
    expect(connections[0].aToB).toMatchObject({ gaps: 1, missedByCapture: 1, retransmitted: 0 });
    expect(capture.messages.at(-1)).toMatchObject({
      bytes: 3 * KIB,
      outcome: 'incomplete',
      ackRoundTrip: 9000,
    });
    expect(findings.map(({ kind }) => kind)).toEqual(['capture-loss']);
  });

  test('late by reordering is not retransmitted', () => {
    const capture = ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);
    // Their Identifications show the order in which they were sent.
    const options = { payload: KIB, ackReq: true, length: KIB };
    capture.packet(10, 'a', 'RC_RDMA_WRITE_ONLY', { ...options, psn: 2, id: 202 });
    capture.packet(12, 'a', 'RC_RDMA_WRITE_ONLY', { ...options, psn: 1, id: 201 });
    ack(capture, 20, 2);
    const { connections } = capture.finish();
    expect(connections[0].aToB).toMatchObject({ gaps: 1, missedByCapture: 0, retransmitted: 0 });
    expect(capture.messages.filter(({ outcome }) => outcome === 'completed').length).toBe(3);
  });

  test('a wrong ICRC counts, and makes no connection', () => {
    const stray = new CaptureBuilder().packet(0, 'a', 'RC_SEND_ONLY', { badIcrc: true });
    expect(stray.finish()).toMatchObject({ connections: [], unconnected: 1 });
    const capture = ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);
    capture.packet(10, 'a', 'RC_SEND_ONLY', { psn: 900, badIcrc: true });
    const { connections } = capture.finish();
    expect(connections[0].aToB).toMatchObject({ icrcBad: 1, requests: 1, gaps: 0 });
  });

  test('a million PSNs ahead: the queue pair began anew', () => {
    const capture = ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);
    ack(write(capture, 10, 1_000_000, 1), 15, 1_000_000);
    const { connections } = capture.finish();
    expect(connections[0].messagesFromA).toMatchObject({ total: 2, completed: 2 });
    expect(connections[0].aToB.gaps).toBe(0);
  });
});

test('from a mark to the CNP', () => {
  const capture = ack(write(new CaptureBuilder(), 0, 0, 1), 5, 0);
  write(capture, 10, 1, 2, { ecn: 3 });
  capture.packet(60, 'b', 'CNP');
  const { connections, findings } = capture.finish();
  expect(connections[0]).toMatchObject({
    aToB: { ecnMarked: 2, ecnCapable: 2 },
    bToA: { cnps: 1 },
    cnpDelay: { count: 1, max: 50_000 },
  });
  expect(findings).toMatchObject([{ kind: 'ecn-marked', severity: 'note', frames: [3, 4] }]);
});

test('a capture that begins with a CNP: `a` sent the first request', () => {
  const capture = new CaptureBuilder().packet(0, 'b', 'CNP');
  const { connections } = ack(write(capture, 10, 0, 1), 15, 0).finish();
  expect(connections).toMatchObject([
    { a: { qpn: QP.a }, aToB: { requests: 1 }, bToA: { cnps: 1, acks: 1 } },
  ]);
});

test('marks in one direction alone: the capture does not show whether CNPs came back', () => {
  const { findings } = write(new CaptureBuilder(), 0, 0, 2, { ecn: 3 }).finish();
  const marked = findings.find(({ kind }) => kind === 'ecn-marked')!;
  expect(marked).toMatchObject({ severity: 'note', hint: expect.stringContaining('A queue on the way') });
  expect(marked.text).toContain('; the capture does not show whether CNPs came back');
});

test('marks of UC queue pairs, whose CNPs are not paired with them', () => {
  const capture = new CaptureBuilder();
  for (const destQp of [0x21, 0x22]) {
    capture.packet(0, 'a', 'UC_SEND_ONLY', { psn: destQp, destQp, payload: 8, ecn: 3 });
    capture.each([50, 60], 'b', 'CNP', { destQp: destQp - 0x10 });
  }
  const { findings } = capture.finish();
  expect(findings.map(({ kind, severity }) => [kind, severity])).toEqual([
    ['ecn-marked', 'note'],
    ['ecn-marked', 'note'],
  ]);
  expect(findings[0].text).toContain('; 4 CNPs came back to this host, for which queue pair');
});

test('UC: missing packets are lost for good', () => {
  const capture = new CaptureBuilder();
  capture.packet(0, 'a', 'UC_SEND_FIRST', { psn: 0, payload: KIB });
  capture.packet(1, 'a', 'UC_SEND_LAST', { psn: 2, payload: 5 });
  capture.packet(2, 'a', 'UC_SEND_ONLY', { psn: 3, payload: 9 });
  const { findings } = capture.finish();
  expect(capture.messages.map(({ bytes, outcome }) => [bytes, outcome])).toEqual([
    [undefined, 'incomplete'],
    [9, 'seen-whole'],
  ]);
  expect(findings[0].kind).toBe('uc-loss');
});

describe('UC sends nothing twice', () => {
  const send = (capture: CaptureBuilder, time: number, psn: number, id: number) =>
    capture.packet(time, 'a', 'UC_SEND_ONLY', { psn, payload: 64, id });
  const kindsOf = (capture: CaptureBuilder) => capture.finish().findings.map(({ kind }) => kind);

  test.each([
    ['Identifications', (psn: number) => 100 + psn, 10],
    ['none', () => 0, 10],
    ['none, 2 ms late', () => 0, 2000],
  ])('a packet that came late is neither lost nor retransmitted: %s', (_, id, late) => {
    const capture = new CaptureBuilder();
    for (const psn of [0, 1, 2, 4]) send(capture, psn, psn, id(psn));
    send(capture, 4 + late, 3, id(3));
    send(capture, 5 + late, 5, id(5));
    expect(kindsOf(capture)).toEqual(['reordering']);
    expect(capture.messages.map(({ outcome }) => outcome)).toEqual(Array(6).fill('seen-whole'));
  });

  test('PSNs that start again are new messages', () => {
    const capture = new CaptureBuilder();
    for (const start of [0, 100_000])
      for (const psn of [7, 8, 9]) send(capture, start + psn, psn, start === 0 ? psn : 100 + psn);
    expect(kindsOf(capture)).toEqual([]);
    expect(capture.messages.length).toBe(6);
  });
});

test('a mirror of two ports without Identifications: responses count once', () => {
  const capture = new CaptureBuilder();
  const twice = (time: number, from: 'a' | 'b', opcode: OpcodeName, options: PacketOptions) =>
    capture.each([time, time + 2], from, opcode, { id: 0, ...options });
  for (let psn = 0; psn < 5; psn++) {
    twice(100 * psn, 'a', 'RC_SEND_ONLY', { psn, payload: 64, ackReq: true });
    twice(100 * psn + 10, 'b', 'RC_ACKNOWLEDGE', { psn });
  }
  twice(1000, 'a', 'RC_SEND_ONLY', { psn: 5, payload: 64, ackReq: true });
  twice(1010, 'b', 'RC_ACKNOWLEDGE', { psn: 5, syndrome: 0x2c });
  twice(2000, 'a', 'RC_SEND_ONLY', { psn: 5, payload: 64, ackReq: true });
  twice(2010, 'b', 'RC_ACKNOWLEDGE', { psn: 5 });
  twice(3000, 'a', 'RC_RDMA_READ_REQUEST', { psn: 6, length: 2 * KIB, ackReq: true });
  // The copies come behind both.
  for (const time of [3010, 3012]) {
    capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn: 6, payload: KIB, id: 0 });
    capture.packet(time + 1, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn: 7, payload: KIB, id: 0 });
  }
  const { connections, findings } = capture.finish();
  expect(connections[0].bToA).toMatchObject({ acks: 6, rnrNaks: 1, ghostAcks: 0, bytes: 2 * KIB });
  expect(findings.map(({ kind }) => kind)).toEqual(
    expect.arrayContaining(['rnr', 'repeated-frames', 'repeated-frames']),
  );
  expect(findings.map(({ kind }) => kind)).not.toContain('ghost-acks');
});

test('ACKs of what was acknowledged', () => {
  const capture = ack(ack(ack(write(new CaptureBuilder(), 0, 0, 2), 5, 1), 6, 1), 7, 0);
  expect(capture.finish().connections[0].bToA).toMatchObject({ acks: 3, ghostAcks: 2 });
});

test('ACKs of packets from before the capture acknowledge them for the first time', () => {
  const capture = ack(ack(new CaptureBuilder(), 0, 99), 1, 100);
  ack(write(capture, 2, 105, 1), 3, 101);
  for (const psn of [102, 103, 104, 105]) ack(capture, psn, psn);
  ack(capture, 200, 103);
  expect(capture.finish().connections).toMatchObject([{ bToA: { ghostAcks: 1 } }]);
});

test('any packets in any order: nothing throws, every packet is counted once', () => {
  const packet = fc.record({
    from: fc.constantFrom('a' as const, 'b' as const),
    opcode: fc.constantFrom(
      ...OPCODES.filter(({ transportName }) => transportName !== 'UD').map(({ key }) => key),
    ),
    psn: fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 0xff_ffff })),
    syndrome: fc.constantFrom(0x1f, 3, 0x2c, 0x60, 0x62, 0x7f, 0x90),
    length: fc.constantFrom(0, 1, 5000, 0x7fff_ffff, 0xffff_ffff),
    payload: fc.constantFrom(0, 1, 256, KIB),
    ackReq: fc.boolean(),
    badIcrc: fc.boolean(),
    migReq: fc.boolean(),
    id: fc.constantFrom(undefined, 0, 5, false as const),
    wait: fc.constantFrom(0, 1, 900, 8000, 9_000_000),
  });
  fc.assert(
    fc.property(fc.array(packet, { maxLength: 60 }), (packets) => {
      const capture = new CaptureBuilder();
      let time = 0;
      for (const { from, opcode, wait, id, payload, ...options } of packets) {
        time += wait;
        const hasPayload = OPCODES.find(({ key }) => key === opcode)!.hasPayload;
        const rest = id === undefined ? {} : { id };
        capture.packet(time, from, opcode, { ...options, ...rest, payload: hasPayload ? payload : 0 });
      }
      const { connections, unconnected } = capture.finish();
      const counts = connections.flatMap(({ aToB, bToA }) => [aToB, bToA]);
      const sum = counts.reduce(
        (all, c) => all + c.requests + c.responses + c.cnps + c.repeatedFrames + c.icrcBad - c.icrcTaken,
        unconnected,
      );
      expect(sum).toBe(packets.length);
      for (const { retransmitted, retransmitCauses } of counts) {
        expect(Object.values(retransmitCauses).reduce((a, b) => a + b, 0)).toBe(retransmitted);
      }
    }),
    { numRuns: 300 },
  );
});

test('counts and reports the queue pairs beyond the number that is followed', {
  tags: ['slow', 'gate'],
}, () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 20_010; i++)
    capture.packet(i, 'a', 'UC_SEND_ONLY', { psn: 5, destQp: 100 + i, id: i & 0xffff });
  const { connections, findings, unconnected } = capture.finish();
  expect(connections.length).toBe(20_000);
  expect(unconnected).toBe(10);
  expect(findings).toMatchObject([{ kind: 'too-many-connections', frameCount: 10 }]);
});
