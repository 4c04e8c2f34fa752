/**
 * Strangers at the connection manager of a device that has live connections: forged and mutated management datagrams, and a flood of
 * requests from another process.
 *
 *   ROCE_HOSTILE_MADS=1000000 npx vitest run test/hostile/cm
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { MemoryNetwork } from '@node-roce/link';
import { CmId, connect, listen, type MessageConnection } from '@node-roce/rdmacm';
import { createRandom } from '@node-roce/sim';
import { type Device, openDevice } from '@node-roce/verbs-api';
import {
  BTH_BYTES,
  CM_LAYOUTS,
  CmAttribute,
  type CmInput,
  type CmName,
  encodeCm,
  GSI_QKEY,
  gidFromText,
  ipCmServiceId,
  MAD_BYTES,
  MAD_HEADER_BYTES,
  MadHeader,
  Opcode,
  PortSpace,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { held, Quarters } from './memory.ts';

const MADS = Number(process.env.ROCE_HOSTILE_MADS ?? 4_000);
const BACKLOG = 16;
const LIVE = 4;
const PORT = 7471;
/** The port of the live connections. */
const LIVE_PORT = 7472;
const [CLIENT, SERVER, STRANGER] = ['10.0.0.1', '10.0.0.2', '10.0.0.66'];
/** Of a number that is kept back: V8's objects and table for it. */
const KEPT_BYTES = 120;
const HEADERS = BTH_BYTES + 8;
const text = new TextEncoder();

/** Connections that carry numbered messages, each sent back; `turn` is one message on each. */
async function traffic(server: Device, client: Device, address: string) {
  const listener = await listen({ device: server, port: LIVE_PORT });
  const pairs: [MessageConnection, MessageConnection][] = [];
  for (let i = 0; i < LIVE; i++) {
    const connecting = connect(`${address}:${LIVE_PORT}`, { device: client });
    const far = await listener.accept();
    pairs.push([await connecting, far]);
  }
  let count = 0;
  return {
    pairs,
    async turn(): Promise<void> {
      const message = `${count++}`;
      await Promise.all(
        pairs.map(async ([near, far]) => {
          await near.send(message);
          await far.send((await far.receive())!);
          expect(await near.receive()).toEqual(text.encode(message));
        }),
      );
    },
    async close(): Promise<void> {
      for (const [near, far] of pairs) {
        await near.close();
        await far.close();
      }
      await listener.close();
    },
  };
}

/** A management datagram to queue pair 1, as it stands on the wire before the ICRC. */
function datagram(mad: Uint8Array, psn: number): Uint8Array {
  const bytes = new Uint8Array(HEADERS + mad.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = Opcode.UD_SEND_ONLY;
  view.setUint16(2, 0xffff);
  view.setUint32(4, 1);
  view.setUint32(8, psn & 0xff_ffff);
  view.setUint32(BTH_BYTES, GSI_QKEY);
  view.setUint32(BTH_BYTES + 4, 1);
  bytes.set(mad, HEADERS);
  return bytes;
}

/** A device with live connections and a listener whose program looks now and then, and the facts that strangers may know of it. */
async function stage() {
  const network = new MemoryNetwork();
  const server = await openDevice({ link: network.link(SERVER, 1024) });
  const client = await openDevice({ link: network.link(CLIENT, 1024) });
  const listening = new CmId({ device: server });
  await listening.listen({ port: PORT, backlog: BACKLOG });
  // A dialogue that is over: its messages are what a mutation begins with.
  const dialogue: Uint8Array[] = [];
  const deliver = network.deliver.bind(network);
  network.deliver = (packet, destination) => {
    if (packet.bytes[7] === 1 && packet.bytes.length === HEADERS + MAD_BYTES)
      dialogue.push(packet.bytes.slice());
    deliver(packet, destination);
  };
  const past = await traffic(server, client, SERVER);
  await past.turn();
  await past.close();
  network.deliver = deliver;
  const live = await traffic(server, client, SERVER);
  const destination = gidFromText(SERVER);
  const sources = [CLIENT, STRANGER].map(gidFromText);
  const refused: Promise<void>[] = [];
  return {
    ...{ network, server, client, live, dialogue },
    /** From the peer's address, or a stranger's. */
    send(bytes: Uint8Array, fromPeer: boolean): void {
      const path = { trafficClass: 0, sourcePort: 0xc000, hopLimit: 64 };
      network.deliver({ bytes, source: sources[fromPeer ? 0 : 1], ...path }, destination);
    },
    /** The program refuses the waiting requests. */
    async look(): Promise<void> {
      const report = await server.connections.call('cmCounters');
      expect(report.pending).toBeLessThanOrEqual(BACKLOG);
      for (let i = 0; i < report.pending; i++) {
        const request = await listening
          .getRequest({ signal: AbortSignal.timeout(50) })
          .catch(() => undefined);
        if (!request) break;
        refused.push(request.destroy());
      }
      await Promise.all(refused.splice(0));
    },
    async [Symbol.asyncDispose]() {
      await listening.destroy();
      await server.close();
      await client.close();
    },
  };
}

async function siege(next: (i: number, dialogue: readonly Uint8Array[]) => Uint8Array) {
  await using at = await stage();
  const quarters = new Quarters(MADS);
  const kept: number[] = [];
  for (let i = 1; i <= MADS; i++) {
    at.send(next(i, at.dialogue), i % 2 === 0);
    if (i % 64 === 0) await setImmediate();
    if (i % 1024 === 0) await at.live.turn();
    if (i % 4096 === 0) await at.look();
    if (i % 1024 !== 0) continue;
    await quarters.at(i);
    if (quarters.samples.length > kept.length)
      kept.push((await at.server.connections.call('cmCounters')).kept);
  }
  await at.look();
  await at.live.turn();
  await quarters.at(MADS);
  for (const pair of at.live.pairs)
    for (const { qp, id } of pair) expect([qp.state, id.state]).toEqual(['RTS', 'CONNECTED']);
  const report = await at.server.connections.call('cmCounters');
  const { acceptedPackets, bugs } = (await at.server.counters()) as unknown as Record<string, number>;
  expect(acceptedPackets).toBeGreaterThan(MADS / 2);
  expect(bugs ?? 0).toBe(0);
  // Numbers of ended connections are kept for the time in their requests, up to two minutes.
  const keeping = KEPT_BYTES * (report.kept - kept[0]);
  if (MADS >= 100_000) expect(quarters.growth - keeping).toBeLessThan(2 * 2 ** 20);
  if (process.env.ROCE_HOSTILE_MADS) console.log(JSON.stringify(report), `bytes held ${quarters.samples}`);
  return report;
}

describe(`${MADS} management datagrams at a device with live connections`, {
  timeout: 300_000 + MADS * 2,
}, () => {
  test('forged: every field at random', async () => {
    const random = createRandom(7);
    const names = Object.keys(CmAttribute) as CmName[];
    const mad = new Uint8Array(MAD_BYTES);
    const words = new Uint32Array(mad.buffer);
    const services = [PORT, LIVE_PORT].map((port) => ipCmServiceId(PortSpace.TCP, port));
    const report = await siege((i) => {
      for (let w = 0; w < words.length; w++) words[w] = random.next();
      mad.set([1, 7, 2, 3]);
      const name = random.pick(names);
      MadHeader.attributeId.set(mad, 0, CmAttribute[name], 'attributeId');
      // Most requests are for a service and the address that are there.
      if (name === 'REQ' && random.chance(0.75)) {
        const { serviceId, primaryRemoteGid, transportService, pathMtu, pkey } = CM_LAYOUTS.REQ;
        serviceId.set(mad, MAD_HEADER_BYTES, services[0], 'serviceId');
        primaryRemoteGid.set(mad, MAD_HEADER_BYTES, gidFromText(SERVER), 'gid');
        transportService.set(mad, MAD_HEADER_BYTES, 0, 'transport');
        pathMtu.set(mad, MAD_HEADER_BYTES, 3, 'pathMtu');
        pkey.set(mad, MAD_HEADER_BYTES, 0xffff, 'pkey');
        // The addresses before the program's private data: version 0, IPv4.
        mad.set([0, 0x40], MAD_HEADER_BYTES + 140);
      }
      return datagram(mad, i);
    });
    expect(report.overflowed).toBeGreaterThan(0);
    expect(report.unexpected).toBeGreaterThan(0);
  });

  test('mutated: bits of another dialogue changed, some cut', async () => {
    const random = createRandom(8);
    const report = await siege((_i, dialogue) => {
      const bytes = random.pick(dialogue).slice();
      for (let flips = random.between(1, 4); flips > 0; flips--)
        bytes[HEADERS + random.between(0, MAD_BYTES - 1)] ^= 1 << random.between(0, 7);
      return random.chance(1 / 16)
        ? bytes.slice(0, HEADERS + 4 * random.between(0, MAD_BYTES / 4 - 1))
        : bytes;
    });
    expect(report.malformed).toBeGreaterThan(0);
    expect(report.unexpected).toBeGreaterThan(0);
    expect(report.dropped).toBeGreaterThan(0);
  });
});

test('a request that waits costs less than 1 KiB', async () => {
  const [few, many] = [1000, 11_000];
  const network = new MemoryNetwork();
  const server = await openDevice({ link: network.link(SERVER, 1024) });
  const listening = new CmId({ device: server });
  await listening.listen({ port: PORT, backlog: many });
  const [source, destination] = [STRANGER, SERVER].map(gidFromText);
  const path = { trafficClass: 0, sourcePort: 0xc000, hopLimit: 64 };
  /** Bytes held once so many wait. */
  const waiting = async (from: number, to: number) => {
    for (let i = from; i < to; i++) {
      const request: CmInput = {
        ...{ name: 'REQ', transactionId: BigInt(i), localCommId: i + 1, localQpn: i + 2 },
        ...{ serviceId: ipCmServiceId(PortSpace.TCP, PORT), localCaGuid: 2n ** 63n + BigInt(i) },
        ...{ pathMtu: 3, pkey: 0xffff },
        ...{ primaryLocalGid: source, primaryRemoteGid: destination, privateData: Uint8Array.of(0, 0x40) },
      };
      network.deliver({ bytes: datagram(encodeCm(request), i), source, ...path }, destination);
      if (i % 100 === 0) await setImmediate();
    }
    await expect.poll(async () => (await server.connections.call('cmCounters')).pending).toBe(to);
    return held();
  };
  const before = await waiting(0, few);
  const each = ((await waiting(few, many)) - before) / (many - few);
  if (process.env.ROCE_HOSTILE_MADS) console.log(`${each} bytes a request that waits`);
  expect(each).toBeLessThan(1024);
  // All of it goes with the listener.
  await listening.destroy();
  expect((await server.connections.call('cmCounters')).pending).toBe(0);
  await server.close();
});

describe('a flood of requests from another process', () => {
  const port = 40_000 + (process.pid % 10_000);
  const host = (n: number) => `127.${(process.pid >> 8) & 0x7f}.${process.pid & 0xff}.${n}`;
  /** Requests a second that the other process tries to send. */
  const RATE = 10_000;
  const ROUNDS = 25;
  /** Turns of the live connections in each part of a round, and requests that come in its second part, at least. */
  const TURNS = 50;
  const REQUESTS = 500;

  test('live connections go on, and what waits is bounded', { tags: ['slow'] }, async () => {
    const [victim, peer, stranger] = [host(41), host(42), host(43)];
    await using server = await openDevice({ address: victim, port });
    await using client = await openDevice({ address: peer, port });
    const listening = new CmId({ device: server });
    await listening.listen({ port: PORT, backlog: BACKLOG });
    const live = await traffic(server, client, victim);
    const script = join(import.meta.dirname, 'cm-flood.mjs');
    const flood = fork(script, [stranger, victim, `${port}`, `${ipCmServiceId(PortSpace.TCP, PORT)}`]);
    try {
      await once(flood, 'message');
      const received = async () => (await server.connections.call('cmCounters')).received;
      /** Turns, and more until so many requests have come; this process's own time, since the flood takes the processor, too. */
      const turns = async (enough: number) => {
        const [before, first] = [process.cpuUsage(), await received()];
        let [count, requests] = [0, 0];
        while (count < TURNS || requests < enough) {
          for (let i = 0; i < TURNS / 5; i++) await live.turn();
          count += TURNS / 5;
          requests = (await received()) - first;
        }
        const { user, system } = process.cpuUsage(before);
        return { count, requests, microseconds: user + system };
      };
      const costs: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const quiet = await turns(0);
        flood.send(RATE);
        const flooded = await turns(REQUESTS);
        flood.send(0);
        await once(flood, 'message');
        // Cost of a request, in turns.
        const turn = quiet.microseconds / quiet.count;
        costs.push((flooded.microseconds / turn - flooded.count) / flooded.requests);
      }
      const report = await server.connections.call('cmCounters');
      expect(report.received).toBeGreaterThan(ROUNDS * REQUESTS);
      expect(report.overflowed).toBeGreaterThan((ROUNDS * REQUESTS) / 2);
      expect(report.pending).toBeLessThanOrEqual(BACKLOG);
      const median = costs.sort((a, b) => a - b)[ROUNDS >> 1];
      console.log(`result: a request costs ${median.toFixed(3)} turns of the live connections`);
      // 0.013 to 0.021 in fourteen runs: this finds a cost of another order only.
      expect(median).toBeLessThan(0.4);
    } finally {
      flood.disconnect();
      await once(flood, 'exit');
    }
    await listening.destroy();
    await live.close();
  });
});
