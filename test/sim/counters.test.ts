/** Every counter, compared with the packets of the network and the completions of the programs (docs/counters.md). */
import {
  CONNECTION_DEFAULTS,
  type ConnectionOptions,
  createRandom,
  EngineDevice,
  Network,
  NotificationPoint,
  type SimHost,
  type SimPacket,
  type SimQp,
  type SimSend,
  type WireOptions,
} from '@node-roce/sim';
import { gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { accountOf, adapterOf, type Counts, counts } from './account.ts';
import { holdLaw } from './laws.ts';

const looks = holdLaw();

const ARENA = 1 << 16;
const PSN = 0xffffc0;
/** The oracle executes a packet when it arrives in its turn, or not at all. */
const discards = { recovery: { keepEarly: 'off' as const } };

interface SetUpOptions extends Partial<ConnectionOptions> {
  service?: 'RC' | 'UC' | 'UD';
  seed?: number;
  aToB?: WireOptions;
  bToA?: WireOptions;
  /** Puts something between a device and the network. */
  around?: (devices: readonly [EngineDevice, EngineDevice], qps: readonly [SimQp, SimQp]) => SimHost[];
}

/** Two engines with one queue pair each, connected; A requests. */
class Set2 {
  readonly network: Network;
  readonly a: EngineDevice;
  readonly b: EngineDevice;
  readonly qpA: SimQp;
  readonly qpB: SimQp;
  readonly posted: { at: number; count: number }[] = [];
  readonly pathMtu: number;
  readonly done: string[] = [];

  constructor({ service = 'RC', seed = 1, aToB = {}, bToA = {}, around, ...options }: SetUpOptions = {}) {
    const connection = { ...CONNECTION_DEFAULTS, timeout: 20, ...options };
    this.network = new Network(seed);
    this.pathMtu = connection.pathMtu;
    [this.a, this.b] = [1, 2].map(
      (n) =>
        new EngineDevice({ gid: gidFromText(`10.0.0.${n}`), seed: seed + n, arenaBytes: ARENA, ...discards }),
    );
    [this.qpA, this.qpB] = [this.a, this.b].map((d) => d.createQp({ service, psn: PSN, qkey: 7 }));
    const hosts = around?.([this.a, this.b], [this.qpA, this.qpB]) ?? [this.a, this.b];
    for (const host of hosts) this.network.add(host);
    this.network.link(hosts[0], hosts[1], aToB);
    this.network.link(hosts[1], hosts[0], bToA);
    this.qpA.connect(this.qpB.info, connection);
    this.qpB.connect(this.qpA.info, connection);
  }

  postReceives(count: number, receive: { length?: number; broken?: boolean } = {}): void {
    for (let i = 0; i < count; i++) this.qpB.postReceive({ wrId: i, offset: 0, length: 4096, ...receive });
    this.posted.push({ at: this.network.trace.length, count });
  }

  /** Posts requests of A, and lets the network run until nothing more happens. */
  post(...requests: Partial<SimSend>[]): void {
    for (const request of requests) {
      this.qpA.postSend({ wrId: 0, opcode: 'SEND', offset: 0, length: 8, ...request });
    }
    this.settle();
  }

  settle(): void {
    this.network.run(() => false, 1e9);
    this.done.push(...this.qpA.pollSend().map(({ status }) => status));
    this.qpB.pollReceive();
  }

  get countsA(): Counts {
    return { ...this.a.adapter.counters() };
  }

  get countsB(): Counts {
    return { ...this.b.adapter.counters() };
  }

  /** Packets that a side sent, and that reached it. */
  packets(side: EngineDevice): { sent: number; arrived: number } {
    const other = side === this.a ? this.b : this.a;
    const { trace } = this.network;
    return {
      sent: trace.filter(({ event, source }) => event === 'sent' && source === side.gid).length,
      arrived: trace.filter(({ event, source }) => event === 'arrived' && source === other.gid).length,
    };
  }

  /** Both sides counted their own events, those the network saw, and nothing else. */
  expect(a: Counts, b: Counts, ofAdapters: { a?: Counts; b?: Counts } = {}): void {
    for (const [device, told, own, got] of [
      [this.a, a, ofAdapters.a, this.countsA],
      [this.b, b, ofAdapters.b, this.countsB],
    ] as const) {
      const { sent, arrived } = this.packets(device);
      const qp = counts({ sentPackets: sent, receivedPackets: arrived, ...told });
      expect(got).toEqual(adapterOf(qp, { receivedPackets: arrived, ...own }));
    }
  }
}

const lossy: WireOptions = { loss: 0.05, duplicate: 0.03, corrupt: 0.03, reorder: 0.02 };

/** A random request of A. */
function draw(random: ReturnType<typeof createRandom>, reliable: boolean): Partial<SimSend> {
  const opcode = random.pick<SimSend['opcode']>(
    reliable
      ? ['SEND', 'SEND_WITH_IMM', 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM', 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD']
      : ['SEND', 'SEND_WITH_IMM', 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM'],
  );
  const length = opcode === 'ATOMIC_FETCH_AND_ADD' ? 8 : random.between(0, 4096);
  const remote = /^SEND/.test(opcode) ? {} : { remoteOffset: 8192 };
  return { opcode, length, ...remote, compareAdd: 1n, immediate: 5 };
}

describe('countersEqualWhatTheNetworkSaw', () => {
  test.each([1, 2, 3, 4, 5, 6])('RC over loss, duplicates, corruption and reordering: seed %i', (seed) => {
    const set = new Set2({ seed, aToB: lossy, minRnrTimer: 14 });
    const random = createRandom(seed);
    let sends = 0;
    const COUNT = 60;
    for (let i = 0; i < COUNT; i += 4) {
      const requests = Array.from({ length: 4 }, () => draw(random, true));
      sends += requests.filter(({ opcode }) => /^SEND/.test(opcode!)).length;
      const needed = requests.filter(({ opcode }) => /SEND|WITH_IMM/.test(opcode!)).length;
      for (const request of requests) set.qpA.postSend({ wrId: i, offset: 0, ...request } as SimSend);
      // Now and then too late: B sends an RNR NAK, and A waits.
      if (random.chance(0.5)) set.network.pass(random.between(1, 3000));
      set.postReceives(needed);
      set.settle();
    }
    expect(set.done).toEqual(Array.from({ length: COUNT }, () => 'SUCCESS'));
    const facts = { trace: set.network.trace, gidA: set.a.gid, psn: PSN, pathMtu: 1024, posted: set.posted };
    const { a, b } = accountOf(facts, 'RC');
    expect(set.countsA).toEqual({ ...a, sentMessages: COUNT, completedSends: sends });
    expect(set.countsB).toEqual(b);
    // And it was not for nothing.
    const { retransmittedPackets, receivedSeqErr, receivedRnrErr } = set.countsA;
    const { duplicateRequest, outOfSeqRequest, icrcErrors, sentRnrErr } = set.countsB;
    for (const count of [
      retransmittedPackets,
      receivedSeqErr,
      duplicateRequest,
      outOfSeqRequest,
      icrcErrors,
    ]) {
      expect(count).toBeGreaterThan(0);
    }
    expect(sentRnrErr).toBe(receivedRnrErr);
    const repeated = set.network.trace.filter(({ retransmission }) => retransmission !== undefined);
    expect(repeated.filter(({ event }) => event === 'sent')).toHaveLength(retransmittedPackets);
  });

  test.each([1, 2, 3, 4])('UC over the same: seed %i', (seed) => {
    const set = new Set2({ service: 'UC', seed, aToB: lossy });
    const random = createRandom(seed);
    let sends = 0;
    const COUNT = 120;
    for (let i = 0; i < COUNT; i++) {
      const request = draw(random, false);
      sends += /^SEND/.test(request.opcode!) ? 1 : 0;
      // Every tenth or so finds no receive.
      if (random.chance(0.6)) set.postReceives(1);
      set.post(request);
    }
    const facts = { trace: set.network.trace, gidA: set.a.gid, psn: PSN, pathMtu: 1024, posted: set.posted };
    const { a, b } = accountOf(facts, 'UC');
    expect(set.countsA).toEqual({ ...a, sentMessages: COUNT, completedSends: sends });
    expect(set.countsB).toEqual(b);
    const { droppedMessages, droppedPackets, outOfBuffer } = set.countsB;
    for (const count of [droppedMessages, droppedPackets, outOfBuffer]) expect(count).toBeGreaterThan(0);
  });
});

describe('countersOfEachCause', () => {
  test('nobody answers: a timeout for each packet sent, a retry for all but the last', () => {
    const set = new Set2({ timeout: 10, retryCnt: 3, aToB: { drop: () => true } });
    set.post({}, {});
    expect(set.done).toEqual(['RETRY_EXC_ERR', 'WR_FLUSH_ERR']);
    // The second waits for credits: no ACK has shown yet that there is no limit.
    const { sent } = set.packets(set.a);
    expect(sent).toBe(4);
    set.expect(
      {
        timeouts: 4,
        retries: 3,
        // None before the round trip is known.
        probes: 0,
        retryExceededErr: 1,
        retransmittedPackets: sent - 1,
        failedSends: 1,
        flushedSends: 1,
      },
      {},
    );
  });

  test('a READ response is lost: one implied NAK, one READ for the rest', () => {
    const set = new Set2({ bToA: { drop: (_, index) => index === 1 } });
    set.post({ opcode: 'RDMA_READ', length: 4000, remoteOffset: 0 });
    set.expect(
      { impliedNakSeqErr: 1, retries: 1, retransmittedPackets: 1, sentMessages: 1 },
      { readRequests: 1, receivedMessages: 1, duplicateRequest: 1 },
    );
    expect(set.countsA.sentPackets).toBe(2);
  });

  test('no receive, ever: an RNR NAK for each try', () => {
    const set = new Set2({ rnrRetry: 2 });
    set.post({}, {});
    expect(set.done).toEqual(['RNR_RETRY_EXC_ERR', 'WR_FLUSH_ERR']);
    const a = set.countsA;
    set.expect(
      {
        receivedRnrErr: 3,
        rnrRetryExceededErr: 1,
        retransmittedPackets: a.sentPackets - 1,
        failedSends: 1,
        flushedSends: 1,
      },
      { sentRnrErr: 3, outOfSeqRequest: set.packets(set.b).arrived - 3 },
    );
  });

  test.each<[string, Partial<SimSend>, Counts, Counts]>([
    ['WRITE', { opcode: 'RDMA_WRITE', remoteOffset: 0, rkey: 0x5600 }, {}, {}],
    ['READ', { opcode: 'RDMA_READ', remoteOffset: ARENA, length: 8 }, {}, {}],
    ['atomic', { opcode: 'ATOMIC_FETCH_AND_ADD', remoteOffset: 0, rkey: 0x5600 }, {}, {}],
  ])('%s with a bad key or range: 0x62', (_name, request) => {
    const set = new Set2();
    set.postReceives(2);
    set.post(request);
    expect(set.done).toEqual(['REM_ACCESS_ERR']);
    set.expect({ receivedAccessErr: 1, failedSends: 1 }, { sentAccessErr: 1, flushedReceives: 2 });
  });

  test('a misaligned atomic: 0x61', () => {
    const set = new Set2();
    set.post({ opcode: 'ATOMIC_FETCH_AND_ADD', remoteOffset: 4 });
    set.expect({ receivedInvalidRequest: 1, failedSends: 1 }, { sentInvalidRequest: 1 });
  });

  test('a receive that is too small: 0x61, and the receive fails', () => {
    const set = new Set2();
    set.postReceives(1, { length: 7 });
    set.postReceives(1);
    set.post({});
    set.expect(
      { receivedInvalidRequest: 1, failedSends: 1 },
      { sentInvalidRequest: 1, failedReceives: 1, shortReceives: 1, flushedReceives: 1 },
    );
  });

  test('a receive with a bad key: 0x63', () => {
    const set = new Set2();
    set.postReceives(1, { broken: true });
    set.post({});
    set.expect({ receivedOperationalErr: 1, failedSends: 1 }, { sentOperationalErr: 1, failedReceives: 1 });
  });

  test('a send with a bad key fails at home', () => {
    const set = new Set2();
    set.post({ broken: true }, {});
    expect(set.done).toEqual(['LOC_PROT_ERR', 'WR_FLUSH_ERR']);
    set.expect({ failedSends: 1, flushedSends: 1 }, {});
  });

  test('UD: Q_Keys, receives that are not there or too small', () => {
    const set = new Set2({ service: 'UD' });
    const { gid, qpn } = set.qpB.info;
    set.post({ to: { gid, qpn, qkey: 8 } }, { to: { gid, qpn, qkey: 7 } });
    set.postReceives(1, { length: 47 });
    set.post({ length: 8 }, { length: 7 });
    set.expect(
      { sentMessages: 4, completedSends: 4 },
      { qkeyViolations: 1, outOfBuffer: 1, droppedPackets: 1, receivedMessages: 1, completedReceives: 1 },
    );
  });

  test('strangers: each packet that is nobody’s has its reason', () => {
    const set = new Set2();
    set.postReceives(4);
    set.post({});
    const sample = set.network.trace.find(({ event }) => event === 'arrived')!;
    const forged = (change: (bytes: Uint8Array) => void, more: Partial<SimPacket> = {}) => {
      const bytes = sample.bytes.slice();
      change(bytes);
      set.b.receive([{ ...sample, ...more, bytes }], set.network.now);
    };
    forged((b) => b.set([0xff])); // no such service
    forged((b) => b.set([0x0f], 1)); // a version to come
    forged((b) => b.set([b[7] ^ 1], 7)); // another queue pair
    forged((b) => b.set([0x24])); // UC
    forged((b) => b.set([0x12, 0x34], 2)); // another partition
    forged(() => {}, { source: gidFromText('10.0.0.9') });
    forged(() => {}, { corrupt: true });
    const { malformed, unknownQp, badPkey, wrongSource, icrcErrors } = set.countsB;
    expect({ malformed, unknownQp, badPkey, wrongSource, icrcErrors }).toEqual({
      malformed: 2,
      unknownQp: 2,
      badPkey: 1,
      wrongSource: 1,
      icrcErrors: 1,
    });
    set.qpB.fail();
    forged(() => {});
    expect(set.countsB).toMatchObject({ wrongState: 1, acceptedPackets: 1, receivedPackets: 9 });
  });

  test('congestion: marks at the receiver, notifications at the sender', () => {
    // As ECN-capable transport sends: the engine itself leaves it to the traffic class.
    const capable = (device: EngineDevice): SimHost => ({
      gid: device.gid,
      receive: (packets, now) => device.receive(packets, now),
      advance: (now) => device.advance(now),
      transmit: (now) => device.transmit(now).map((packet) => ({ ...packet, trafficClass: 2 })),
      nextDeadline: () => device.nextDeadline(),
    });
    const set = new Set2({
      aToB: { rate: 1e8, markAt: 2000 },
      around: ([a, b], [qpA]) => [capable(a), new NotificationPoint(b, () => qpA.info.qpn)],
    });
    set.post({ opcode: 'RDMA_WRITE', length: 40_000, remoteOffset: 0 });
    const arrived = set.network.trace.filter(({ event }) => event === 'arrived');
    const marked = arrived.filter(({ trafficClass }) => trafficClass === 3).length;
    const cnps = arrived.filter(({ bytes }) => bytes[0] === 0x81).length;
    expect(Math.min(marked, cnps)).toBeGreaterThan(3);
    const a = set.a.adapter.qpCounters(set.qpA.info.qpn);
    const b = set.b.adapter.qpCounters(set.qpB.info.qpn);
    expect([b.ecnMarked, set.countsB.ecnMarked]).toEqual([marked, marked]);
    expect([a.cnpReceived, set.countsA.cnpReceived]).toEqual([cnps, cnps]);
    expect(a.receivedPackets).toBe(set.packets(set.a).arrived - cnps);
  });

  test('the counts of a destroyed queue pair stay with the device', () => {
    const set = new Set2({ aToB: { drop: (_, index) => index === 0 } });
    set.post({ opcode: 'RDMA_WRITE', length: 3000, remoteOffset: 0 });
    const before = set.countsA;
    expect(before).toMatchObject({ sentMessages: 1, receivedSeqErr: 1, retransmittedPackets: 3 });
    set.a.adapter.destroyQp(set.qpA.info.qpn);
    expect(set.countsA).toEqual(before);
  });
});

test('runs without faults send almost nothing twice', () => {
  expect(looks()).toBeGreaterThan(10);
});
