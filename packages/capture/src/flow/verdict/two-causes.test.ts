/** What a verdict says where both ends, or more than one cause, have a part in the trouble. */
import { expect, test } from 'vitest';
import { CaptureBuilder, type PacketOptions } from '../../../testing/capture-builder.ts';
import { ack, send, verdictOf } from '../../../testing/messages.ts';

const A = '10.0.0.1';
const B = '10.0.0.2';
const MS = 1000;
const RNR = 0x2c;
const NAK = 0x60;

/** Messages of one packet that are answered after 100 µs; times in µs, PSNs from `psn` on. */
function talk(capture: CaptureBuilder, start: number, psn: number, options: PacketOptions = {}) {
  for (let i = 0; i < 4; i++) {
    send(capture, start + i * 300, psn + i, options);
    ack(capture, start + i * 300 + 100, psn + i, options);
  }
  return capture;
}

const kindsOf = (capture: CaptureBuilder): string[] => {
  const { kind, also } = verdictOf(capture);
  return [kind, ...also.map((each) => each.kind)];
};

test('a network that duplicates packets: two answers to one retransmission show no host that stood still', () => {
  const silent = (capture: CaptureBuilder) => {
    send(capture, 10 * MS, 104);
    send(capture, 78 * MS, 104);
    for (let i = 0; i < 2; i++) ack(capture, 79 * MS + i * 2000, 104);
    return capture;
  };
  expect(kindsOf(silent(talk(new CaptureBuilder(), 0, 100)))).toEqual(['host-stood-still']);
  const doubled = talk(new CaptureBuilder(), 0, 100);
  send(doubled, 2 * MS, 103, { id: 103 });
  const verdict = verdictOf(silent(doubled));
  expect(verdict).toMatchObject({ kind: 'packets-lost', certainty: 'likely' });
  expect(verdict.also.map(({ text }) => text)).toEqual([
    `The network, or the mirror, duplicates packets between ${A} and ${B}: 1 frame shown twice.`,
  ]);
});

test('a network that duplicates packets, and their receiver acknowledges them twice', () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 4; i++) {
    send(capture, i * 300, 100 + i, { id: 100 + i });
    ack(capture, i * 300 + 100, 100 + i);
    if (i % 2 === 1) continue;
    send(capture, i * 300 + 150, 100 + i, { id: 100 + i });
    ack(capture, i * 300 + 200, 100 + i);
  }
  expect(verdictOf(capture)).toMatchObject({
    kind: 'repeated-frames',
    severity: 'note',
    certainty: 'likely',
    text: `The network duplicates packets between ${A} and ${B}: 2 frames shown twice, 2 acknowledged twice.`,
    chain: [{ frame: 3 }],
  });
});

test('a mirror that shows every packet twice is no network that duplicates packets', () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 4; i++)
    for (const lag of [0, 2]) {
      send(capture, i * 300 + lag, 100 + i, { id: 100 + i });
      ack(capture, i * 300 + 100 + lag, 100 + i, { id: 500 + i });
    }
  expect(kindsOf(capture)).toEqual(['healthy']);
});

test('wrong ICRCs of both ends: one verdict names both', () => {
  const capture = talk(new CaptureBuilder(), 0, 100, { badIcrc: true });
  const verdict = verdictOf(capture);
  expect(verdict.text).toContain(`No ICRC from ${A} or ${B} is right: `);
  expect(verdict.chain.map(({ frame }) => frame)).toEqual([1, 2]);
  expect(verdict.also).toEqual([]);
  const one = new CaptureBuilder();
  for (let i = 0; i < 4; i++) {
    send(one, i * 300, 100 + i, { badIcrc: true });
    ack(one, i * 300 + 100, 100 + i);
  }
  expect(verdictOf(one).text).toContain(`No ICRC from ${A} is right: `);
});

test('a loss before the capture point: the chain has the packet that came without it', () => {
  const capture = talk(new CaptureBuilder(), 0, 100); // Frames 1 to 8.
  send(capture, 2000, 104);
  send(capture, 2020, 106); // Frame 10: 105 is missing.
  ack(capture, 2100, 105, { syndrome: NAK });
  for (const psn of [105, 106]) send(capture, 2200 + psn, psn);
  ack(capture, 2500, 106);
  const verdict = verdictOf(talk(capture, 200 * MS, 107));
  expect(verdict).toMatchObject({ kind: 'packets-lost', certainty: 'certain' });
  expect(verdict.text).toContain(`between ${A} and the capture point lost requests`);
  expect(verdict.chain.map(({ frame }) => frame)).toEqual([10, 11, 12, 14]);
  expect(verdict.chain[0].text).toContain('is missing: packets sent after it come without it');
});

test('a path that lost packets before the capture point lost those behind it, too', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 2000, 104);
  send(capture, 2020, 106);
  ack(capture, 2100, 105, { syndrome: NAK });
  for (const psn of [105, 106]) send(capture, 2200 + psn, psn);
  ack(capture, 2500, 106);
  // Its ACK does not arrive.
  send(capture, 10 * MS, 107);
  ack(capture, 10.1 * MS, 107);
  send(capture, 77.2 * MS, 107);
  ack(capture, 77.3 * MS, 107);
  expect(verdictOf(talk(capture, 200 * MS, 108)).text).toBe(
    `The path between ${A} and the capture point lost packets in both directions; this explains both recoveries.`,
  );
});

test('behind the capture point: lost or damaged, if nothing that was late shows itself', () => {
  const lost = (again: number) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (const psn of [104, 105]) send(capture, 2000 + psn, psn);
    ack(capture, 2200, 104, { syndrome: NAK });
    for (const psn of [104, 105]) send(capture, 2300 + psn, psn);
    ack(capture, 2500, 105);
    // The first copy of 104 comes, and is acknowledged as a duplicate.
    for (let i = 0; i < again; i++) ack(capture, 30 * MS, 105);
    return verdictOf(talk(capture, 200 * MS, 106)).text;
  };
  expect(lost(0)).toContain('lost or damaged requests');
  expect(lost(1)).not.toContain('lost or damaged');
});

test('a READ response that is missing, and comes after all: reordered, not lost', () => {
  const read = (capture: CaptureBuilder, time: number, psn: number) =>
    capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length: 64, migReq: false });
  const response = (capture: CaptureBuilder, time: number, psn: number) =>
    capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_ONLY', { psn, payload: 64 });
  const late = (copies: number) => {
    const capture = new CaptureBuilder();
    for (const psn of [100, 101, 102]) read(capture, psn - 100, psn);
    for (const psn of [100, 102]) response(capture, psn, psn);
    for (const psn of [101, 102]) read(capture, psn + 200, psn);
    for (let i = 0; i < copies; i++) response(capture, 400 + i, 101);
    response(capture, 410, 102);
    read(capture, 200 * MS, 103);
    response(capture, 200.1 * MS, 103);
    return verdictOf(capture);
  };
  expect(late(1)).toMatchObject({ kind: 'packets-lost' });
  expect(late(2)).toMatchObject({
    kind: 'reordering',
    text: `The path from ${B} to ${A} reordered packets; this explains 1 recovery; nothing was lost.`,
    hint: expect.stringContaining('adaptive routing'),
  });
});

test('answers to first copies that come behind the retransmission do not show that its answers are late', () => {
  const capture = new CaptureBuilder();
  const read = (time: number, psn: number) =>
    capture.packet(time, 'a', 'RC_RDMA_READ_REQUEST', { psn, length: 2048, migReq: false });
  const add = (time: number, psn: number) =>
    capture.packet(time, 'a', 'RC_FETCH_ADD', { psn, migReq: false });
  const first = (time: number, psn: number) =>
    capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_FIRST', { psn, payload: 1024 });
  const last = (time: number, psn: number) =>
    capture.packet(time, 'b', 'RC_RDMA_READ_RESPONSE_LAST', { psn, payload: 1024 });
  const added = (time: number, psn: number) => capture.packet(time, 'b', 'RC_ATOMIC_ACKNOWLEDGE', { psn });
  const rest = (time: number) => {
    add(time, 102);
    add(time + 1, 103);
    send(capture, time + 2, 104);
  };
  read(0, 98);
  first(50, 98);
  last(60, 99);
  read(1000, 100);
  rest(1001);
  last(1050, 101); // 100 is missing.
  read(1052, 100);
  rest(1053);
  for (const [time, isAgain] of [
    [1060, false],
    [1100, true],
  ] as const) {
    if (isAgain) {
      first(time, 100);
      last(time + 1, 101);
    }
    added(time + 2, 102);
    added(time + 3, 103);
    ack(capture, time + 4, 104);
  }
  expect(kindsOf(talk(capture, 200 * MS, 105))).toEqual(['packets-lost']);
});

test('RNR waits: one that ends long after its time, by the ACK timer, is no part of them', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  ack(capture, 10.1 * MS, 104, { syndrome: RNR });
  send(capture, 11 * MS, 104);
  ack(capture, 11.1 * MS, 104);
  send(capture, 20 * MS, 105);
  ack(capture, 20.1 * MS, 105, { syndrome: RNR });
  send(capture, 87.1 * MS, 105);
  ack(capture, 87.2 * MS, 105);
  const { connections } = talk(capture, 100 * MS, 106).finish();
  expect(connections[0].recoveries.map(({ cause }) => cause)).toEqual(['rnr', 'timeout']);
  expect(connections[0].rnrWait).toMatchObject({ count: 1, max: 900e3 });
});

test('a receiver that was not ready, and then stood still: both are told', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  ack(capture, 10.1 * MS, 104, { syndrome: RNR });
  for (const time of [11, 78.2, 145.4, 212.6]) send(capture, time * MS, 104);
  for (let i = 0; i < 4; i++) ack(capture, 230 * MS + i * 2000, 104);
  expect(kindsOf(talk(capture, 300 * MS, 105)).toSorted()).toEqual(['host-stood-still', 'rnr']);
});

test('a connection whose answers all take long: the verdict names the end that they come from', () => {
  const slow = (wait: number) => {
    const capture = new CaptureBuilder();
    for (let i = 0; i < 12; i++) {
      send(capture, i * 20 * MS, 100 + i);
      ack(capture, i * 20 * MS + wait, 100 + i);
    }
    return verdictOf(capture);
  };
  expect(slow(6 * MS).text).toContain(`${B} answered none within 6 ms`);
  expect(slow(1 * MS).text).not.toContain('answered none');
});

test('long messages take long to pass the capture point: that makes no end slow', () => {
  const BYTES = 1024;
  const PACKETS = 1024;
  /** Of a message of 1 MiB at 1 Gbit/s. */
  const STEP = 8.4;
  const part = (i: number) => (i === 0 ? 'FIRST' : i === PACKETS - 1 ? 'LAST' : 'MIDDLE');
  const long = (isRead: boolean) => {
    const capture = new CaptureBuilder();
    for (let m = 0; m < 12; m++) {
      const start = m * 10 * MS;
      const psn = m * PACKETS;
      if (isRead)
        capture.packet(start, 'a', 'RC_RDMA_READ_REQUEST', { psn, length: BYTES * PACKETS, migReq: false });
      for (let i = 0; i < PACKETS; i++)
        capture.packet(
          start + 20 + i * STEP,
          isRead ? 'b' : 'a',
          isRead ? `RC_RDMA_READ_RESPONSE_${part(i)}` : `RC_SEND_${part(i)}`,
          { psn: psn + i, payload: BYTES, ackReq: !isRead && part(i) === 'LAST', migReq: false },
        );
      if (!isRead) ack(capture, start + 40 + PACKETS * STEP, psn + PACKETS - 1);
    }
    return verdictOf(capture).text;
  };
  for (const isRead of [false, true])
    expect(long(isRead)).toBe('Nothing stands out: 12 messages, all complete, nothing retransmitted.');
});

test('a queue pair that answers nothing: whether its host still sends', () => {
  const unanswered = (isThere: boolean) => {
    const capture = talk(new CaptureBuilder(), 0, 100);
    for (let i = 0; i < 8; i++) {
      send(capture, (10 + i * 67) * MS, 104);
      if (isThere) ack(capture, (11 + i * 67) * MS, 700 + i, { host: 3, destQp: 0x21 });
    }
    return verdictOf(capture.packet(3000 * MS, 'a', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 }));
  };
  expect(unanswered(true)).toMatchObject({
    kind: 'retries-exceeded',
    text: `${B} stopped answering ${A} at 0.001 s: 8 copies unanswered; ${A} gave up; its host still sends.`,
  });
  expect(unanswered(false).text).not.toContain('still sends');
});

test('a host that sends something after the first copy, and crashes: it does not "still send"', () => {
  const capture = talk(new CaptureBuilder(), 0, 100);
  send(capture, 10 * MS, 104);
  ack(capture, 10.05 * MS, 700, { host: 3, destQp: 0x21 });
  for (let i = 1; i < 8; i++) send(capture, (10 + i * 67) * MS, 104);
  const { text } = verdictOf(
    capture.packet(3000 * MS, 'a', 'UC_SEND_ONLY', { psn: 1, payload: 8, destQp: 0x77 }),
  );
  expect(text).toContain('8 copies unanswered');
  expect(text).not.toContain('still sends');
});

/** A gap on the path of each of three hosts; before the capture point on those of some, behind it on the others; of one, no NAK shows it. */
function gapsOf(before: readonly number[], silent?: number) {
  const capture = new CaptureBuilder();
  const times: [number, () => void][] = [];
  for (const host of [3, 4, 5]) {
    const to = { host, destQp: 0x20 + host };
    const back = { host, destQp: 0x30 + host };
    const at = (time: number, add: (time: number) => void) =>
      times.push([time + host, () => add(time + host)]);
    for (const psn of before.includes(host) ? [100, 101, 103] : [100, 101, 102, 103])
      at(psn * 10, (time) => send(capture, time, psn, to));
    const wait = host === silent ? 67.1 * MS : 0;
    at(1100, (time) =>
      ack(capture, time, wait > 0 ? 101 : 102, { ...(wait > 0 ? {} : { syndrome: NAK }), ...back }),
    );
    for (const psn of [102, 103]) at(1200 + wait + psn, (time) => send(capture, time, psn, to));
    at(1500 + wait, (time) => ack(capture, time, 103, back));
    at(300 * MS, (time) => send(capture, time, 104, to));
    at(300.1 * MS, (time) => ack(capture, time, 104, back));
  }
  for (const [, add] of times.toSorted(([x], [y]) => x - y)) add();
  return verdictOf(capture);
}

test('losses on the paths of several hosts: the verdict names the host that they share', () => {
  expect(gapsOf([3, 4, 5])).toMatchObject({
    kind: 'packets-lost',
    certainty: 'certain',
    text: `Packets lost in 3 of 3 connections between ${B} and 3 other hosts; the chain is of #1.`,
  });
});

test('the verdict on the paths of several hosts says no more than those on each', () => {
  expect(gapsOf([]).text).toContain('Packets lost or damaged in 3 of 3 connections');
  expect(gapsOf([3]).text).toContain('Packets missing or late in 3 of 3 connections');
  expect(gapsOf([]).certainty).toBe('certain');
  expect(gapsOf([3, 4], 5)).toMatchObject({
    kind: 'packets-lost',
    certainty: 'likely',
    text: expect.stringContaining('Packets missing or late in 3 of 3 connections'),
  });
});

test('the first packet of a capture has a damaged PSN: those behind it are no retransmissions', () => {
  const capture = new CaptureBuilder();
  send(capture, 0, 100 + 4096, { badIcrc: true });
  const verdict = verdictOf(talk(talk(capture, 100, 101), 2000, 105));
  expect(verdict.also.map(({ kind }) => kind)).not.toContain('retransmissions');
  expect(verdict.kind).not.toBe('retransmissions');
});
