/** The diagnostics channels of an engine in a worker, and in this thread, over real sockets: the same to a listener. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Device,
  openDevice,
  type PacketInfo,
  type Retransmission,
  type StateChange,
} from '@node-roce/verbs-api';
import { afterEach, describe, expect, test } from 'vitest';

// A port and addresses of our own: suites that run at the same time do not meet.
const port = 40_000 + (process.pid % 10_000);
const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;

const open = new Set<Device>();
afterEach(async () => {
  for (const device of open) await device.close();
  open.clear();
});

async function openSide(address: string, options: object) {
  const device = await openDevice({ address, port, ...options });
  open.add(device);
  const pd = await device.allocPd();
  const cq = await device.createCq();
  const mr = await pd.registerMr(new Uint8Array(new SharedArrayBuffer(65_536)), {
    access: { remoteWrite: true },
  });
  return { device, cq, mr, qp: await pd.createQp({ sendCq: cq }) };
}

/** Code of the ACK timeout, 2.1 s: eight of them are more than any engine's thread is held up. */
const TIMEOUT = 18;

async function openPair(options: object) {
  const [a, b] = [await openSide(host(1), options), await openSide(host(2), options)];
  await a.qp.connect(b.qp.connectionData(), { timeout: TIMEOUT });
  await b.qp.connect(a.qp.connectionData(), { timeout: TIMEOUT });
  const write = async (length: number) => {
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr: a.mr, length }],
      remote: b.mr.remote(),
    });
    expect((await a.cq.next()).status).toBe('SUCCESS');
  };
  return { a, b, write };
}

type Heard = ((PacketInfo | StateChange | Retransmission) & { device: Device })[];

/** Listens to a channel until it is disposed of. */
function listen(name: string): { heard: Heard } & Disposable {
  const heard: Heard = [];
  const listener = (message: unknown) => void heard.push(message as Heard[number]);
  subscribe(name, listener);
  return { heard, [Symbol.dispose]: () => void unsubscribe(name, listener) };
}

describe.each(['inline', 'worker'] as const)('engine: %s', (engine) => {
  test('states, packets and retransmissions reach this thread', async () => {
    using states = listen('node-roce:state');
    using packets = listen('node-roce:packet');
    using repeats = listen('node-roce:retransmission');
    const faults = { loss: 0.05, seed: 11 };
    const { a, b, write } = await openPair({ engine, faults });
    for (let i = 0; i < 20; i++) await write(20_000);
    // The messages of the last turns have come, too, once a later message has.
    const of = <T>(device: Device, { heard }: { heard: Heard }) =>
      heard.filter((message) => message.device === device) as T[];
    // More ACKs may come at any time: counts are of one moment once two looks agree, with a call of the other device between.
    const counted = () => a.device.counters();
    let ofA = await counted();
    for (let before = ''; before !== JSON.stringify(ofA); ofA = await counted()) {
      before = JSON.stringify(ofA);
      await b.device.counters();
    }
    expect(of<StateChange>(a.device, states).map(({ to }) => to)).toEqual(['INIT', 'RTR', 'RTS']);
    const out = of<PacketInfo>(a.device, packets).filter(({ direction }) => direction === 'out');
    expect(out).toHaveLength(ofA.sentPackets);
    expect(out[0]).toMatchObject({
      opcode: 'RC_RDMA_WRITE_FIRST',
      psn: a.qp.initialPsn,
      peer: b.device.gids[0].gid,
    });
    expect(out[0].header).toBeInstanceOf(Uint8Array);
    const inbound = of<PacketInfo>(a.device, packets).filter(({ direction }) => direction === 'in');
    expect(inbound).toHaveLength(ofA.receivedPackets);
    expect(ofA.retransmittedPackets).toBeGreaterThan(0);
    expect(of(a.device, repeats)).toHaveLength(ofA.retransmittedPackets);
  });

  test('only while somebody listens', async () => {
    // Nothing is sent twice, however busy the machine is.
    const { a, b, write } = await openPair({ engine, recovery: { probes: false } });
    const called = async () => {
      await a.device.counters();
      await b.device.counters();
    };
    await write(3000);
    const first = listen('node-roce:packet');
    await called(); // The engines know now.
    await write(3000);
    await called();
    expect(first.heard).toHaveLength(4); // A packet and its ACK, on both sides.
    first[Symbol.dispose]();
    await called();
    await write(3000);
    await called();
    using second = listen('node-roce:packet');
    await sleep(50);
    expect([first.heard.length, second.heard.length]).toEqual([4, 0]);
    // And without a call of anything: it is looked from time to time.
    for (let heard = 0; heard < 4; ) {
      await sleep(50);
      const before = second.heard.length;
      await write(3000);
      await called();
      heard = second.heard.length - before;
      expect(heard).toBeLessThanOrEqual(4);
    }
  });
});
