/** Exchanges of the connection manager, and their findings. */
import { readFileSync } from 'node:fs';
import { CaptureParser, LinkType } from '@node-roce/pcap';
import { buildPacket, type CmInput, encodeCm } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';
import { rawRecord } from '../../../testing/records.ts';
import { PacketReader } from '../../read/reader.ts';
import type { Analysis } from '../analysis.ts';
import { FlowAnalyzer } from '../analyzer.ts';

const ADDRESSES = { a: '10.0.0.1', b: '10.0.0.2', c: '10.0.0.3' } as const;
type Host = keyof typeof ADDRESSES;

/** A capture of datagrams between queue pairs 1. */
class Dialogue {
  readonly #analyzer = new FlowAnalyzer();
  readonly #reader = new PacketReader({ onPacket: (packet) => this.#analyzer.add(packet) });
  readonly #psns: Record<Host, number> = { a: 10, b: 20, c: 30 };
  #end = 0;

  /** A message `time` ms after the start; `cut` bytes of the frame are missing. */
  send(time: number, from: Host, to: Host, message: CmInput, { lost = false, cut = 0 } = {}): this {
    const psn = this.#psns[from]++;
    const frame = buildPacket({
      version: 2,
      ip: { version: 4, source: ADDRESSES[from], destination: ADDRESSES[to] },
      bth: { opcode: 0x64, destQp: 1, psn },
      extensions: { deth: { qkey: 0x8001_0000, srcQp: 1 } },
      payload: encodeCm(message),
    });
    this.#end = time;
    if (!lost) this.#frame(frame.subarray(0, frame.length - cut), time);
    return this;
  }

  /** Another frame, so that the capture ends later. */
  until(time: number): this {
    this.#end = time;
    this.#frame(new Uint8Array(20).fill(0x45), time);
    return this;
  }

  finish(): Analysis {
    expect(this.#end).toBeGreaterThanOrEqual(0);
    return this.#analyzer.finish(this.#reader.summary(), this.#reader.addresses);
  }

  #frame(frame: Uint8Array, milliseconds: number): void {
    const record = rawRecord(frame, {});
    const seconds = Math.floor(milliseconds / 1000);
    Object.assign(record, { seconds: 1 + seconds, nanoseconds: (milliseconds - seconds * 1000) * 1e6 });
    this.#reader.frame(record);
  }
}

const REQ = {
  name: 'REQ',
  transactionId: 5n,
  localCommId: 0x1a,
  serviceId: 0x0106_1c06n,
  localQpn: 0x11,
  startingPsn: 100,
  remoteCmResponseTimeout: 18,
  primaryAckTimeout: 14,
  retryCount: 7,
  rnrRetryCount: 6,
  pathMtu: 3,
  maxCmRetries: 15,
} satisfies CmInput;
const REP = {
  name: 'REP',
  localCommId: 0x2b,
  remoteCommId: 0x1a,
  localQpn: 0x12,
  startingPsn: 200,
} satisfies CmInput;
const RTU = { name: 'RTU', localCommId: 0x1a, remoteCommId: 0x2b } satisfies CmInput;
const kinds = ({ findings }: Analysis) => findings.map(({ kind }) => kind);

test('a connection: both ends, the agreed parameters, and the duration', () => {
  const { exchanges, findings } = new Dialogue()
    .send(0, 'a', 'b', REQ)
    .send(8, 'b', 'a', REP)
    .send(10, 'a', 'b', RTU)
    .send(500, 'a', 'b', { name: 'DREQ', localCommId: 0x1a, remoteCommId: 0x2b })
    .send(501, 'b', 'a', { name: 'DREP', localCommId: 0x2b, remoteCommId: 0x1a })
    .finish();
  expect(findings).toEqual([]);
  expect(exchanges).toMatchObject([
    {
      kind: 'connection',
      active: { address: '10.0.0.1', qpn: 0x11, startingPsn: 100 },
      passive: { address: '10.0.0.2', qpn: 0x12, startingPsn: 200 },
      service: 'TCP port 7174',
      outcome: 'established',
      isDisconnected: true,
      offered: { pathMtu: 1024, ackTimeout: 14, retryCount: 7, rnrRetryCount: 6, maxCmRetries: 15 },
      answerTime: 8e6,
      connectTime: 10e6,
      retries: 0,
      firstFrame: 1,
      lastFrame: 5,
    },
  ]);
  expect(exchanges[0].messages.map(({ title, from }) => `${from} ${title}`)).toEqual([
    'active ConnectRequest',
    'passive ConnectReply',
    'active ReadyToUse',
    'active DisconnectRequest',
    'passive DisconnectReply',
  ]);
});

describe('refused', () => {
  test.each([
    [8, 'invalid service ID (8)', /Nothing listens on TCP port 7174 at 10\.0\.0\.2/],
    [28, 'consumer defined (28)', /The application refused/],
    [10, 'stale connection (10)', /from before a restart/],
    [4, 'timeout (4)', /The passive side gave up waiting/],
    [3, 'no resources (3)', /out of resources/],
    [12, 'invalid GID (12)', /GID index/],
    [77, 'reserved (77)', /IBTA/],
  ])('reason %i', (reason, text, hint) => {
    const { exchanges, findings } = new Dialogue()
      .send(0, 'a', 'b', REQ)
      .send(2, 'b', 'a', { name: 'REJ', remoteCommId: 0x1a, reason })
      .finish();
    expect(exchanges).toMatchObject([{ outcome: 'rejected', reject: { code: reason, by: 'passive' } }]);
    expect(findings).toMatchObject([
      {
        kind: 'cm-rejected',
        severity: 'error',
        frames: [1, 2],
        text: `10.0.0.1 QP 0x11 → 10.0.0.2 (TCP port 7174): 10.0.0.2 rejected the connection at 0.002 s: ${text}`,
      },
    ]);
    expect(findings[0].hint).toMatch(hint);
  });

  test('by the active side, after the REP', () => {
    const { exchanges } = new Dialogue()
      .send(0, 'a', 'b', REQ)
      .send(2, 'b', 'a', REP)
      .send(3, 'a', 'b', { name: 'REJ', localCommId: 0x1a, remoteCommId: 0x2b, reason: 28 })
      .finish();
    expect(exchanges).toMatchObject([{ outcome: 'rejected', reject: { by: 'active' } }]);
  });

  test('a service of datagrams', () => {
    const { exchanges, findings } = new Dialogue()
      .send(0, 'a', 'b', { name: 'SIDR_REQ', requestId: 9, serviceId: 0x0111_0007n })
      .send(1, 'b', 'a', { name: 'SIDR_REP', requestId: 9, status: 1 })
      .finish();
    expect(exchanges).toMatchObject([{ kind: 'datagram-service', outcome: 'rejected' }]);
    expect(findings[0].text).toContain(
      '(UDP port 7): 10.0.0.2 rejected the connection at 0.001 s: unsupported (1)',
    );
  });
});

test('REJs without their REQs, of a listener that does not exist: one exchange for each client', () => {
  const capture = new Dialogue();
  for (const [i, to] of (['a', 'c', 'a'] as const).entries())
    capture.send(i, 'b', to, { name: 'REJ', localCommId: 0, remoteCommId: 0x1a + i, reason: 8 });
  const { exchanges, findings } = capture.finish();
  expect(exchanges).toMatchObject(
    [ADDRESSES.a, ADDRESSES.c, ADDRESSES.a].map((address) => ({
      active: { address },
      passive: { address: ADDRESSES.b },
      outcome: 'rejected',
      reject: { by: 'passive' },
      retries: 0,
    })),
  );
  expect(findings.map(({ kind }) => kind)).toEqual(Array(3).fill('cm-rejected'));
});

describe('without an answer', () => {
  test('retransmitted messages: how often, how far apart', () => {
    const capture = new Dialogue();
    for (const time of [0, 2000, 4000, 6000]) capture.send(time, 'a', 'b', REQ);
    const { exchanges, findings } = capture.finish();
    expect(exchanges).toMatchObject([{ outcome: 'unanswered', retries: 3 }]);
    expect(findings).toMatchObject([{ kind: 'cm-unanswered', severity: 'error', frameCount: 4 }]);
    expect(findings[0].text).toContain('it was sent 4 times, 2 s apart, first at 0.000 s');
  });

  test('all retries used up: a path that was cut looks like a host that is down, so neither is certain', () => {
    const capture = new Dialogue();
    for (let i = 0; i < 16; i++) capture.send(2000 * i, 'a', 'b', REQ);
    const { verdict } = capture.until(60_000).finish();
    expect(verdict).toMatchObject({ kind: 'cm-unanswered', certainty: 'likely', culprit: ADDRESSES.b });
  });

  test('one request: a finding only when its timeout is over before the capture ends', () => {
    // 4.096 µs · 2^18 is 1.07 s.
    expect(kinds(new Dialogue().send(0, 'a', 'b', REQ).until(1000).finish())).toEqual([]);
    expect(kinds(new Dialogue().send(0, 'a', 'b', REQ).until(1100).finish())).toEqual(['cm-unanswered']);
  });
});

describe('an answer that another message shows', () => {
  test('an MRA: the passive side takes longer', () => {
    const mra = { name: 'MRA', localCommId: 0x2b, remoteCommId: 0x1a, serviceTimeout: 22 } satisfies CmInput;
    const { exchanges, findings } = new Dialogue()
      .send(0, 'a', 'b', REQ)
      .send(1, 'b', 'a', mra)
      .until(2000)
      .finish();
    expect(exchanges).toMatchObject([{ outcome: 'unanswered', answerTime: 1e6 }]);
    expect(findings).toEqual([]);
  });

  test.each([
    ['RTU', RTU, 5e6],
    ['DREQ', { ...RTU, name: 'DREQ' } satisfies CmInput, undefined],
  ])('%s in a capture of one direction', (_, message, connectTime) => {
    const capture = new Dialogue().send(0, 'a', 'b', REQ).send(5, 'a', 'b', message).until(60_000);
    const { exchanges, findings } = capture.finish();
    expect(exchanges).toMatchObject([{ outcome: 'established', connectTime }]);
    expect(exchanges[0].answerTime).toBe(undefined);
    expect(findings).toEqual([]);
  });
});

test('messages that came again, though the connection came about', () => {
  const { exchanges, findings } = new Dialogue()
    .send(0, 'a', 'b', REQ)
    .send(2000, 'a', 'b', REQ)
    .send(2001, 'b', 'a', REP)
    .send(4000, 'b', 'a', REP)
    .send(4001, 'a', 'b', RTU)
    .finish();
  expect(exchanges).toMatchObject([{ outcome: 'established', retries: 2, connectTime: 4.001e9 }]);
  expect(findings).toMatchObject([{ kind: 'cm-retries', severity: 'warning' }]);
  expect(findings[0].text).toContain(
    'REQ from the active side was sent 2 times, 2 s apart, REP from the passive side was sent 2 times, 2 s apart; the connection took 4 s',
  );
});

test('a communication ID that is used again with another transaction is another exchange', () => {
  const { exchanges, findings } = new Dialogue()
    .send(0, 'a', 'b', REQ)
    .send(1, 'b', 'a', REP)
    .send(2, 'a', 'b', RTU)
    .send(3, 'a', 'b', { ...REQ, transactionId: 6n })
    .send(4, 'b', 'a', { ...REP, localCommId: 0x2c })
    .send(5, 'a', 'b', { ...RTU, remoteCommId: 0x2c })
    .finish();
  expect(exchanges.map(({ outcome, retries }) => [outcome, retries])).toEqual([
    ['established', 0],
    ['established', 0],
  ]);
  expect(findings).toEqual([]);
});

test('an adapter that restarted counts the PSNs of its queue pair 1 from 0 again: no copies', () => {
  const capture = new CaptureBuilder();
  for (const [time, id] of [
    [0, 0x1a],
    [120e6, 0x2a],
  ]) {
    const rep = { ...REP, localCommId: id + 1, remoteCommId: id };
    capture.cm(time, 'a', { ...REQ, transactionId: BigInt(id), localCommId: id }, 0);
    // A mirror shows it again.
    capture.cm(time + 10, 'a', { ...REQ, transactionId: BigInt(id), localCommId: id }, 0);
    capture.cm(time + 100, 'b', rep, 0);
    capture.cm(time + 200, 'a', { ...RTU, localCommId: id, remoteCommId: id + 1 }, 1);
  }
  const { exchanges, findings } = capture.finish();
  expect(exchanges).toMatchObject(Array(2).fill({ outcome: 'established', retries: 0 }));
  expect(findings).toEqual([]);
});

test('a datagram that its sender counted and the capture does not have', () => {
  const capture = new Dialogue()
    .send(0, 'a', 'b', REQ)
    .send(1, 'b', 'a', REP)
    .send(2, 'a', 'b', RTU)
    .send(100, 'a', 'b', { name: 'DREQ', localCommId: 0x1a, remoteCommId: 0x2b }, { lost: true })
    .send(8100, 'a', 'b', { name: 'DREQ', localCommId: 0x1a, remoteCommId: 0x2b });
  const { findings } = capture.finish();
  expect(findings).toMatchObject([{ kind: 'cm-loss', severity: 'note', frames: [3, 4] }]);
  expect(findings[0].text).toContain(
    '10.0.0.1: 1 management datagram not in the capture: its QP 1 skipped PSN 12',
  );
});

test('a capture that begins within an exchange, and cut messages, give no failure', () => {
  const partial = new Dialogue().send(0, 'b', 'a', REP).send(1, 'a', 'b', RTU).until(60_000).finish();
  expect(partial.exchanges).toMatchObject([{ outcome: 'partial', passive: { address: '10.0.0.2' } }]);
  expect(partial.findings).toEqual([]);
  const cut = new Dialogue().send(0, 'a', 'b', REQ, { cut: 180 }).until(60_000).finish();
  expect(cut.exchanges).toEqual([]);
});

test('three captures of the real rxe', () => {
  const analyze = (name: string) => {
    const parser = new CaptureParser();
    parser.push(readFileSync(new URL(`../../../../../test/fixtures/captures/${name}`, import.meta.url)));
    parser.end();
    const analyzer = new FlowAnalyzer();
    const reader = new PacketReader({ onPacket: (packet) => analyzer.add(packet) });
    for (const { data, seconds, nanoseconds } of parser) {
      reader.frame(
        Object.assign(rawRecord(data.slice(), { linkType: LinkType.ETHERNET }), { seconds, nanoseconds }),
      );
    }
    return analyzer.finish(reader.summary(), reader.addresses);
  };
  expect(analyze('cm_rping_refused.pcap')).toMatchObject({
    exchanges: [{ outcome: 'rejected', service: 'TCP port 7999' }],
    findings: [{ kind: 'cm-rejected' }],
  });
  expect(analyze('cm_cmtime.pcap').exchanges).toMatchObject(
    [0, 1, 2].map(() => ({ outcome: 'established', isDisconnected: true, retries: 0 })),
  );
  // Both ends ask to disconnect at once: the connection was there, though each sends a DREQ.
  expect(analyze('cm_rdma_client.pcap')).toMatchObject({
    exchanges: [{ outcome: 'established', retries: 0 }],
    findings: [],
  });
});

test('an exchange is found by a few communication IDs, however many an end claims', () => {
  const dialogue = new Dialogue().send(0, 'a', 'b', REQ);
  for (let i = 0; i < 20; i++) dialogue.send(i, 'b', 'a', { ...REP, localCommId: 0x100 + i });
  for (const localCommId of [0x100, 0x113])
    dialogue.send(30, 'b', 'a', { name: 'DREQ', localCommId, remoteCommId: 0x99 });
  const { exchanges } = dialogue.finish();
  expect(exchanges.map(({ messages }) => messages.length)).toEqual([22, 1]);
});
