/** The channels of node:diagnostics_channel, with the engine in this thread; with a worker: test/sockets/diagnostics.test.ts. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { RX_SLOT_WORDS, Rx, RxBatch } from '@node-roce/transport';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { clockOfTurns, stopClock } from '../testing/clock.ts';
import { openPair, type Pair } from '../testing/pair.ts';
import { Diagnostics, listening } from './diagnostics.ts';
import type { Device, PacketInfo, Retransmission, StateChange } from './index.ts';

type Told<T> = T & { device: Device };

const subscriptions: [string, (message: unknown) => void][] = [];
afterEach(() => {
  for (const [name, listener] of subscriptions.splice(0)) unsubscribe(name, listener);
});

function listen<T>(name: string, also?: (message: Told<T>) => void): Told<T>[] {
  const heard: Told<T>[] = [];
  const listener = (message: unknown) => {
    heard.push(message as Told<T>);
    also?.(message as Told<T>);
  };
  subscribe(name, listener);
  subscriptions.push([name, listener]);
  return heard;
}

async function write({ a, b }: Pair, length = 2500): Promise<void> {
  a.qp.postSend({
    opcode: 'RDMA_WRITE',
    signaled: true,
    sgList: [{ mr: a.mr, length }],
    remote: b.mr.remote(),
  });
  expect((await a.cq.next()).status).toBe('SUCCESS');
}

describe('node-roce:packet', () => {
  test('each packet as it leaves and as it arrives', async () => {
    stopClock(); // Nothing is probed for.
    await using pair = await openPair();
    const { a, b } = pair;
    const heard = listen<PacketInfo>('node-roce:packet');
    await write(pair);
    const said = heard.map(({ device, direction, opcode, payloadLength }) =>
      [device === a.device ? 'a' : 'b', direction, opcode, payloadLength].join(' '),
    );
    const parts = ['FIRST 1024', 'MIDDLE 1024', 'LAST 452'].map((part) => `RC_RDMA_WRITE_${part}`);
    expect(said.filter((text) => text.startsWith('a out'))).toEqual(parts.map((part) => `a out ${part}`));
    expect(said.filter((text) => text.startsWith('b in'))).toEqual(parts.map((part) => `b in ${part}`));
    expect(said).toContain('b out RC_ACKNOWLEDGE 0');
    expect(said.at(-1)).toBe('a in RC_ACKNOWLEDGE 0');
    const [first] = heard;
    expect(first).toMatchObject({ qpn: a.qp.qpNum, psn: a.qp.initialPsn, verdict: 'ok', trafficClass: 0 });
    expect(first.peer).toEqual(b.device.gids[0].gid);
    expect(first.header).toHaveLength(12 + 16);
    expect(first.time).toBe(performance.timeOrigin + performance.now());
    const answer = heard.at(-1)!;
    expect(answer).toMatchObject({ qpn: a.qp.qpNum, peer: b.device.gids[0].gid });
  });

  test('reports malformed packets and bad ICRCs', () => {
    const batch = new RxBatch(2, 4096);
    batch.slab.set([0x1f, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, 5], 8);
    const told: unknown[] = [];
    const diagnostics = new Diagnostics(
      () => 1,
      (messages) => told.push(...messages.map(({ message }) => message)),
    );
    for (const [i, length] of [12, 3].entries()) {
      const w = i * RX_SLOT_WORDS;
      batch.slots[w + Rx.OFFSET] = 8;
      batch.slots[w + Rx.LENGTH] = length;
      batch.slots[w + Rx.VERDICT] = i;
    }
    batch.count = 2;
    diagnostics.received(batch);
    diagnostics.flush();
    expect(told).toMatchObject([
      { opcode: undefined, qpn: 9, psn: 5, verdict: 'ok', payloadLength: 0 },
      { opcode: undefined, qpn: 0, verdict: 'bad-icrc', header: new Uint8Array([0x1f, 0, 0xff]) },
    ]);
  });

  test('a listener may call what it likes', async () => {
    await using pair = await openPair();
    const { a, b } = pair;
    let calls = 0;
    listen<PacketInfo>('node-roce:packet', ({ device, direction }) => {
      if (device !== b.device || direction !== 'in' || calls++ > 0) return;
      // In the middle of a message that is coming in.
      b.cq.poll();
      void b.qp.modify({ qpState: 'RESET' });
    });
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr, length: 2500 }], remote: b.mr.remote() });
    while (b.qp.state !== 'RESET') await b.device.progress();
    expect(calls).toBeGreaterThan(0);
  });
});

test('node-roce:state: each change, and the end', async () => {
  const heard = listen<StateChange>('node-roce:state');
  const pair = await openPair();
  const { a, b } = pair;
  await a.qp.modify({ qpState: 'SQD' });
  a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr }], remote: { ...b.mr.remote(), rkey: 0x5600 } });
  await a.qp.modify({ qpState: 'RTS' });
  expect((await a.cq.next()).status).toBe('REM_ACCESS_ERR');
  await a.qp.close();
  await a.device.close();
  await b.device.close();
  const of = (device: Device) =>
    heard.filter((message) => message.device === device).map(({ from, to }) => `${from} ${to}`);
  const up = ['RESET INIT', 'INIT RTR', 'RTR RTS'];
  expect(of(a.device)).toEqual([...up, 'RTS SQD', 'SQD RTS', 'RTS ERR', 'ERR undefined']);
  expect(of(b.device)).toEqual([...up, 'RTS ERR']);
  expect(heard[0]).toMatchObject({ qpn: a.qp.qpNum });
});

test('node-roce:retransmission: as many as are counted, each with its cause', async () => {
  clockOfTurns();
  const heard = listen<Retransmission>('node-roce:retransmission');
  await using pair = await openPair({ faults: { loss: 0.1, seed: 7 } }, { timeout: 8 });
  for (let i = 0; i < 20; i++) await write(pair, 10_000);
  const { a } = pair;
  const { retransmittedPackets } = await a.device.counters();
  expect(retransmittedPackets).toBeGreaterThan(5);
  expect(heard.filter(({ device }) => device === a.device)).toHaveLength(retransmittedPackets);
  const causes = new Set(heard.map(({ cause }) => cause));
  expect(causes).toContain('sequence-nak');
  expect(heard.every(({ qpn }) => qpn === a.qp.qpNum)).toBe(true);
});

describe('while nobody listens', () => {
  test('it is looked once a turn, not once a packet, and no packet is looked at', async () => {
    await using pair = await openPair();
    const look = vi.spyOn(Diagnostics.prototype, 'look');
    const made = (['received', 'sent'] as const).map((name) => vi.spyOn(Diagnostics.prototype, name));
    const { a, b } = pair;
    a.qp.postSend({ opcode: 'RDMA_WRITE', sgList: [{ mr: a.mr }], remote: b.mr.remote(), signaled: true });
    // Turns of our own only: the event loop does not turn.
    let turns = 0;
    while (a.cq.poll().length === 0) {
      b.cq.poll();
      turns += 2;
      expect(turns).toBeLessThan(1000);
    }
    const { receivedPackets } = await b.device.counters();
    expect(receivedPackets).toBe(64);
    expect(look.mock.calls.length).toBeLessThan(receivedPackets / 2);
    for (const spy of made) expect(spy).not.toHaveBeenCalled();
    vi.restoreAllMocks();
  });

  test('nothing is allocated', () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const diagnostics = new Diagnostics(listening, () => {});
    const turn = () => {
      diagnostics.look();
      diagnostics.onRetransmit(1, 2, 'timeout');
      diagnostics.onStateChange(1, 'RTS', 'ERR');
      diagnostics.flush();
    };
    const TURNS = 20_000;
    // Less than an object's smallest size for each turn, by far. Compiling allocates too: on a busy machine for many rounds.
    const LIMIT = TURNS * 2;
    let least = Infinity;
    for (let round = 0; round < 50 && least >= LIMIT; round++) {
      collect();
      const before = process.memoryUsage().heapUsed;
      for (let i = 0; i < TURNS; i++) turn();
      least = Math.min(least, process.memoryUsage().heapUsed - before);
    }
    expect(least).toBeLessThan(LIMIT);
    expect(listening()).toBe(0);
  });
});
