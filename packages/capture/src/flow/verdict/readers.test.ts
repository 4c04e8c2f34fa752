/** What readers of `roce flows` did not see in its first lines: a second cause, which fate is likely, why two sums differ (test/evidence/flows-exam.md). */
import { LinkType } from '@node-roce/pcap';
import { buildPacket, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { CaptureBuilder, frameOf, type PacketOptions } from '../../../testing/capture-builder.ts';
import { ack, send, verdictOf } from '../../../testing/messages.ts';
import { rawRecord } from '../../../testing/records.ts';
import { PacketReader } from '../../read/reader.ts';
import { FlowAnalyzer } from '../analyzer.ts';
import { overviewText } from '../overview.ts';

const A = '10.0.0.1';
const B = '10.0.0.2';
const MS = 1000;
const RNR = 0x2c;
const NAK = 0x60;
/** rxe's ACK timer. */
const TIMER = 67.2 * MS;

/** Messages of one packet, 20 ms apart; times in µs. */
function talk(
  capture: CaptureBuilder,
  start: number,
  psn: number,
  wait = 100,
  count = 4,
  options: PacketOptions = {},
): CaptureBuilder {
  for (let i = 0; i < count; i++) {
    send(capture, start + i * 20 * MS, psn + i, options);
    ack(capture, start + i * 20 * MS + wait, psn + i);
  }
  return capture;
}

/** A message whose answer passes after `wait`, and that is sent again after the ACK timeout. */
function answeredAndSentAgain(capture: CaptureBuilder, start: number, psn: number, wait: number): void {
  send(capture, start, psn);
  ack(capture, start + wait, psn);
  send(capture, start + TIMER, psn);
  ack(capture, start + TIMER + 100, psn);
}

describe('a path that loses packets, and is slow', () => {
  const gapOf = (wait: number) => {
    const capture = talk(new CaptureBuilder(), 0, 100, wait, 12);
    send(capture, 300 * MS, 112);
    send(capture, 300.02 * MS, 114);
    ack(capture, 300 * MS + wait, 113, { syndrome: NAK });
    for (const psn of [113, 114]) send(capture, 301 * MS + wait + psn, psn);
    ack(capture, 302 * MS + 2 * wait, 114);
    return verdictOf(talk(capture, 500 * MS, 115, wait));
  };

  test('both are named', () => {
    expect(gapOf(6 * MS)).toMatchObject({
      kind: 'packets-lost',
      also: [
        {
          kind: 'slow-responder',
          text: `The path to ${B}, or that host, is slow: no answer came within 6 ms.`,
        },
      ],
    });
    expect(gapOf(1 * MS).also).toEqual([]);
  });

  test('messages that wait for a receive make no path slow', () => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 12; i++) {
      send(capture, i * 20 * MS, 100 + i);
      ack(capture, i * 20 * MS + 100, 100 + i, { syndrome: RNR });
      send(capture, (i * 20 + 6) * MS, 100 + i);
      ack(capture, (i * 20 + 6) * MS + 100, 100 + i);
    }
    const { kind, also } = verdictOf(capture);
    expect([kind, ...also.map((each) => each.kind)]).toEqual(['rnr']);
  });
});

describe('which fate of several is likely', () => {
  /** @param more adds packets from PSN 107 on. @returns the next PSN */
  const lateAndAgain = (needless: number, more = (_: CaptureBuilder): number => 107) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (let i = 0; i < 3; i++)
      answeredAndSentAgain(capture, (100 + i * 100) * MS, 104 + i, i < needless ? 66 * MS : 100);
    return verdictOf(talk(capture, 900 * MS, more(capture)));
  };

  test('answers that are known to be late, and no sign of a loss: the others were delayed, or lost', () => {
    const { text, hint, also } = lateAndAgain(1);
    expect(text).toBe(
      `The path between ${A} and the capture point delayed or lost answers; this explains 2 of 3 recoveries.`,
    );
    expect(hint).toContain('raise the ACK timeout');
    expect(also.map(({ kind }) => kind)).toEqual(['spurious-retransmission']);
  });

  test('nothing is known to be late, or a NAK shows a loss: any fate', () => {
    expect(lateAndAgain(0).text).toContain('lost, damaged, reordered or delayed answers');
    const { text } = lateAndAgain(1, (capture) => {
      for (const psn of [107, 108]) send(capture, 500 * MS + psn, psn);
      ack(capture, 501 * MS, 107, { syndrome: NAK });
      for (const psn of [107, 108]) send(capture, 502 * MS + psn, psn);
      ack(capture, 503 * MS, 108);
      return 109;
    });
    expect(text).toContain('lost, damaged, reordered or delayed packets');
  });

  test('what the capture shows of other packets comes first', () => {
    const { text, hint } = lateAndAgain(0, (capture) => {
      for (let psn = 107; psn < 116; psn += 3) {
        const time = 500 * MS + psn * MS;
        for (const [at, next] of [
          [0, 0],
          [20, 2],
          [40, 1],
        ])
          send(capture, time + at, psn + next, { id: 300 + psn + next });
        ack(capture, time + 100, psn + 2);
      }
      return 116;
    });
    expect(text).toContain('reordered, lost, damaged or delayed answers');
    expect(hint).toContain(
      'Seen on the way to the capture point: 3 packets reordered. Behind it the same may happen.',
    );
  });

  test('one loss that is shown does not speak for many that are not', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    send(capture, 100 * MS, 104);
    send(capture, 100.02 * MS, 106);
    ack(capture, 100.1 * MS, 105, { syndrome: NAK });
    for (const psn of [105, 106]) send(capture, 101 * MS + psn, psn);
    ack(capture, 102 * MS, 106);
    // Messages of two packets: only the second one asks for an answer, and the capture does not show it at first.
    for (let i = 0; i < 9; i++) {
      const time = (200 + i * 100) * MS;
      const psn = 107 + 2 * i;
      const first = (at: number) =>
        capture.packet(at, 'a', 'RC_SEND_FIRST', { psn, payload: 1024, migReq: false });
      first(time);
      first(time + TIMER);
      capture.packet(time + TIMER + 1, 'a', 'RC_SEND_LAST', {
        psn: psn + 1,
        payload: 64,
        ackReq: true,
        migReq: false,
      });
      ack(capture, time + TIMER + 100, psn + 1);
    }
    expect(verdictOf(talk(capture, 1300 * MS, 125)).text).not.toMatch(/lost (?:packets|requests|or damaged)/);
  });
});

describe('the place and the kind of what is missing', () => {
  test('of some recoveries the place is known: the verdict and the overview have the same numbers', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (const [i, isAnswered] of [true, true, true, false].entries()) {
      const [time, psn] = [(100 + i * 200) * MS, 104 + 2 * i];
      const first = (at: number) =>
        capture.packet(at, 'a', 'RC_SEND_FIRST', { psn, payload: 1024, migReq: false });
      const last = (at: number) =>
        capture.packet(at, 'a', 'RC_SEND_LAST', { psn: psn + 1, payload: 64, ackReq: true, migReq: false });
      first(time);
      if (isAnswered) {
        last(time + 1);
        ack(capture, time + 100, psn + 1);
      }
      first(time + TIMER);
      last(time + TIMER + 1);
      ack(capture, time + TIMER + 100, psn + 1);
    }
    const { verdict, overview } = talk(capture, 1300 * MS, 112).finish();
    expect(verdict.text).toContain(`between ${A} and the capture point`);
    expect(verdict.text).toContain('(3 of 4 recoveries, probably all)');
    expect(overviewText(overview).join('\n')).toContain(
      `3 between ${A} and the capture point, 1 not known where`,
    );
  });

  test('nothing shows on which side of the capture point a request was lost', () => {
    const capture = new CaptureBuilder();
    for (const psn of [101, 102]) send(capture, psn, psn);
    ack(capture, 200, 100, { syndrome: NAK });
    for (const psn of [100, 101, 102]) send(capture, 300 + psn, psn);
    ack(capture, 500, 102);
    expect(verdictOf(talk(capture, 200 * MS, 103)).text).toContain(`somewhere between ${A} and ${B},`);
  });

  test('READ responses, and one packet that may be the request: mostly answers', () => {
    const capture = new CaptureBuilder();
    const read = (time: number, psn: number) =>
      capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length: 64, migReq: false });
    const response = (time: number, psn: number) =>
      capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn, payload: 64 });
    for (let i = 0; i < 3; i++) {
      const [time, psn] = [i * 20 * MS, 100 + 2 * i];
      for (const next of [psn, psn + 1]) read(time + next, next);
      if (i < 2) response(time + 200, psn + 1);
      const again = i < 2 ? 300 : TIMER;
      for (const next of [psn, psn + 1]) read(time + again + next, next);
      for (const next of [psn, psn + 1]) response(time + again + 200 + next, next);
    }
    read(300 * MS, 106);
    response(300.1 * MS, 106);
    const { verdict, overview } = capture.finish();
    expect(verdict.text).toContain('lost packets, mostly answers;');
    expect(verdict.hint).toContain(
      '1 recovery may be for a request or for its answer: which one does not show here.',
    );
    expect(verdict.chain.map(({ text }) => text)).toContain(
      `a later response of ${B} comes without the one with PSN 100 = 0x000064`,
    );
    expect(overviewText(overview).join('\n')).toContain('1 ACK timeout, 2 gaps in responses');
  });
});

test('CNPs without marks: a queue behind the capture point; not where NAKs came, with which adapters send CNPs, nor one CNP where nothing can be marked', () => {
  const withCnps = (syndrome?: number, ecn = 2, count = 2) => {
    const capture = talk(new CaptureBuilder(), 0, 100, 100, 4, { ecn });
    for (let time = 100; time < 100 + count; time++) capture.packet(time * MS, 'b', 'CNP', { payload: 16 });
    if (syndrome !== undefined) {
      send(capture, 110 * MS, 104);
      ack(capture, 110.1 * MS, 104, { syndrome });
      send(capture, 111 * MS, 104);
      ack(capture, 111.1 * MS, 104);
    }
    return verdictOf(talk(capture, 200 * MS, 105));
  };
  expect(withCnps(undefined, 0, 1)).toMatchObject({ kind: 'healthy', also: [] });
  expect(withCnps(undefined, 0).text).toBe(withCnps().text);
  expect(withCnps()).toMatchObject({
    kind: 'cnp',
    severity: 'note',
    certainty: 'likely',
    text: `A queue between the capture point and ${B} is congested: 2 CNPs came to ${A}.`,
    chain: [{ frame: 9 }],
  });
  const { kind, also } = withCnps(RNR);
  expect([kind, ...also.map((each) => each.kind)]).toEqual(['rnr']);
});

test('ACKs that come twice though nothing was retransmitted: something duplicates packets; not if they grant credits', () => {
  const twice = (count: number, syndrome: number) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 4; i++) {
      talk(capture, i * 20 * MS, 100 + i, 100, 1);
      if (i < count) ack(capture, (i * 20 + 5) * MS, 100 + i, { syndrome });
    }
    return verdictOf(capture);
  };
  expect(twice(3, 0x1f)).toMatchObject({
    kind: 'ghost-acks',
    severity: 'note',
    certainty: 'likely',
    text: `The path between ${B} and the capture point duplicates packets: 3 packets acknowledged twice, none retransmitted.`,
  });
  expect(twice(3, 0x0a).kind).toBe('healthy');
  expect(twice(2, 0x1f).kind).toBe('healthy');
});

describe('ACKs of what was acknowledged, though nothing between the responder and the capture point duplicates them', () => {
  /** @param copies so many requests come a second time, with the same Identification */
  const overtaken = (copies: number) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 12; i++) {
      const [time, psn] = [i * 20 * MS, 100 + 2 * i];
      for (const next of [0, 1]) send(capture, time + next, psn + next, { id: 700 + 2 * i + next });
      if (i < copies) send(capture, time + 2, psn, { id: 700 + 2 * i });
      for (const next of [1, 0]) ack(capture, time + 101 - next, psn + next);
    }
    return verdictOf(capture);
  };

  test('a later ACK overtook each', () => {
    expect(overtaken(0)).toMatchObject({ kind: 'healthy', also: [] });
    const { kind, text } = overtaken(2);
    expect(kind).toBe('repeated-frames');
    expect(text).not.toContain('acknowledged twice');
  });

  test('each request was doubled before the capture point, or in it', () => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 12; i++) {
      const [time, psn] = [i * 20 * MS, 100 + i];
      for (const copy of [0, 1]) send(capture, time + copy, psn, { id: 700 + i });
      for (const copy of [0, 1]) ack(capture, time + 100 + copy, psn);
    }
    const { kind, also, text } = verdictOf(capture);
    expect([kind, ...also.map((each) => each.kind)], text).not.toContain('ghost-acks');
  });
});

test('CNPs of which no other packet of the queue pair was captured: no connection', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (const time of [100, 101]) capture.packet(time * MS, 'b', 'CNP', { payload: 16, destQp: 0x99 });
  const { connections, overview, unconnected } = capture.finish();
  expect([connections.length, overview.connections, unconnected]).toEqual([1, 1, 2]);
});

test('a capture of CNPs alone: no connection, and a finding of them', () => {
  const capture = new CaptureBuilder();
  const queuePairs = [0x99, 0x77, 0x99];
  for (const [i, destQp] of queuePairs.entries()) capture.packet(i * MS, 'b', 'CNP', { payload: 16, destQp });
  const { connections, findings, unconnected, verdict } = capture.finish();
  expect([connections.length, unconnected, verdict.kind]).toEqual([0, 3, 'not-known']);
  expect(findings).toMatchObject([{ kind: 'cnp', severity: 'note', connection: undefined, frameCount: 3 }]);
  expect(findings[0].frames).toEqual([1, 2, 3]);
  expect(findings[0].text).toMatch(/^3 CNPs, the first at 0\.000 s from 10\.0\.0\.2 to 10\.0\.0\.1 QP 0x99;/);
  expect(findings[0].hint).toContain('congested');
});

describe('the overview', () => {
  test('NAKs for which nobody went back', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    send(capture, 100 * MS, 104);
    send(capture, 100.02 * MS, 106);
    for (const time of [100.1, 100.2, 100.3]) ack(capture, time * MS, 105, { syndrome: NAK });
    for (const psn of [105, 106]) send(capture, 101 * MS + psn, psn);
    ack(capture, 102 * MS, 106);
    const { overview } = talk(capture, 200 * MS, 107).finish();
    expect(overview).toMatchObject({ sequenceNaks: 3, rnrNaks: 0 });
    expect(overviewText(overview).join('\n')).toContain('1 sequence NAK (3 came)');
    expect(overviewText(overview).join('\n')).not.toContain('not known where');
  });

  test('recoveries whose place is not known', () => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    send(capture, 100 * MS, 104);
    ack(capture, 100.1 * MS, 104);
    for (const time of [100 * MS + TIMER, 100 * MS + 2 * TIMER]) send(capture, time, 104);
    ack(capture, 100 * MS + 2 * TIMER + 100, 104);
    const { overview } = talk(capture, 400 * MS, 105).finish();
    const sum = overview.lostNear.reduce((all, { packets }) => all + packets, 0) + overview.sides.unknown;
    expect(sum).toBe(overview.goBacks);
    const [line] = overviewText(overview).filter((each) => each.startsWith('packets were missing'));
    expect(line.match(/\d+(?= (?:between|not known))/g)!.reduce((all, count) => all + Number(count), 0)).toBe(
      sum,
    );
  });

  test('an IPv4 address and its form in GIDs of RoCE v1 are one host', () => {
    const analyzer = new FlowAnalyzer();
    const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
    for (const [version, source, destination] of [
      [1, '::ffff:192.0.2.1', '::ffff:192.0.2.2'],
      [2, '192.0.2.2', '192.0.2.1'],
    ] as const) {
      const frame = buildPacket({
        version,
        ethernet: { source: '02:00:00:00:00:01', destination: '02:00:00:00:00:02' },
        ip: { source, destination },
        bth: { opcode: 'RC_RDMA_WRITE_ONLY', destQp: 0x10 + version, psn: 100, ackReq: true },
        extensions: { reth: { va: 0n, rkey: 1, length: 8 } },
        payload: new Uint8Array(8),
      });
      reader.frame(rawRecord(frame, { linkType: LinkType.ETHERNET, nanoseconds: version }));
    }
    const { overview } = analyzer.finish(reader.summary(), reader.addresses);
    expect(overview).toMatchObject({ hosts: 2, connections: 2 });
  });
});

test('a short wait of one connection, and answers that the capture cut in another: both are told', () => {
  const waits = (isCut: boolean) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    send(capture, 100 * MS, 104);
    ack(capture, 103 * MS, 104);
    const options = { psn: 7, host: 3, destQp: 0x33 };
    const answer = frameOf('b', Opcode.RC_ACKNOWLEDGE, options);
    if (isCut) capture.other(200 * MS, answer.subarray(0, answer.length - 8));
    const [{ verdict }] = talk(capture, 300 * MS, 105).finish().connections;
    return verdict.text;
  };
  expect(waits(false)).toBe('Nothing stands out: 9 messages, the longest wait was 3 ms.');
  expect(waits(true)).toBe(
    'Nothing stands out: 9 messages, the longest wait was 3 ms; cut headers hide NAKs.',
  );
});

test('the longest wait is that of a message, though no silence was so long', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  // A message is sent while the one before it waits.
  for (const [at, psn] of [
    [100, 104],
    [102, 105],
  ])
    send(capture, at * MS, psn);
  for (const psn of [104, 105]) ack(capture, 104 * MS, psn);
  const { verdict } = talk(capture, 300 * MS, 106).finish();
  expect(verdict.text).toBe('Nothing stands out: 10 messages, the longest wait was 4 ms.');
});

test('a message that waited for long is named first, though no silence was long', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  for (let i = 0; i < 50; i++) send(capture, (100 + 2 * i) * MS, 104 + i);
  ack(capture, 202 * MS, 153);
  const { verdict } = talk(capture, 300 * MS, 154).finish();
  expect(verdict.text).toBe('The longest wait was 102 ms; nothing else stands out: 58 messages.');
});
