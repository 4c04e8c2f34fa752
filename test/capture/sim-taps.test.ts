/** The taps themselves: what they show, and that what is known of each packet is what its sender counted. */
import { type ReadResult, type RocePacket, readPackets, verdictName } from '@node-roce/capture/node';
import { type EngineDevice, type TappedPacket, tap, tapCapture } from '@node-roce/sim';
import { bthDestQp, bthOpcode, bthPsn, gidEquals, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { type CaptureRun, runConnections } from './sim/run.ts';

const RUN: CaptureRun = {
  seed: 1,
  network: 'all',
  loss: 0.05,
  ends: ['engine', 'engine'],
  hosts: 3,
  connections: 4,
  count: 30,
};

async function read(bytes: Uint8Array, onPacket?: (packet: RocePacket) => void): Promise<ReadResult> {
  async function* chunks() {
    yield bytes;
  }
  return readPackets(chunks(), onPacket === undefined ? {} : { onPacket });
}

const serials = (packets: readonly TappedPacket[]) => new Set(packets.map(({ serial }) => serial));

describe.each([1, 2, 3, 4, 5])('seed %i', (seed) => {
  const run = runConnections({ ...RUN, seed });
  const { network, hosts } = run;
  const atHosts = hosts.map((host) => tap(network, host));
  const middle = tap(network, 'middle');

  test('the known retransmissions of a host are those that its engine counted', () => {
    hosts.forEach((host, i) => {
      const device = run.devices[i] as EngineDevice;
      const own = atHosts[i].filter(({ event }) => event === 'sent');
      const again = own.filter(({ retransmission }) => retransmission !== undefined);
      expect(own.every(({ source }) => gidEquals(source, host.gid))).toBe(true);
      expect(again.length).toBe(device.adapter.counters().retransmittedPackets ?? 0);
    });
  });

  test('packets that arrive have passed the middle, those were sent, and each in order of time', () => {
    const sent = new Set(atHosts.flatMap((packets) => packets.filter(({ event }) => event === 'sent')));
    const arrived = atHosts.flatMap((packets) => packets.filter(({ event }) => event === 'arrived'));
    const [atStart, half, atEnd] = [serials([...sent]), serials(middle), serials(arrived)];
    expect([...half].every((serial) => atStart.has(serial))).toBe(true);
    expect([...atEnd].every((serial) => half.has(serial))).toBe(true);
    expect(atStart.size).toBeGreaterThan(half.size);
    expect(half.size).toBeGreaterThan(atEnd.size);
    for (const packets of [...atHosts, middle]) {
      expect(packets.every(({ time }, i) => i === 0 || time >= packets[i - 1].time)).toBe(true);
    }
  });

  test('its capture reads back as it was', async () => {
    const found: string[] = [];
    const { summary } = await read(tapCapture(middle), ({ time, opcode, psn, destQp, ipId, icrc }) => {
      found.push([time, opcode, psn, destQp, ipId, verdictName(icrc)].join());
    });
    const start = middle[0].time;
    const ids = run.addressing !== 'ipv6';
    const expected = middle.map(({ time, bytes: b, ipId, corrupt }) =>
      [
        Math.round(time * 1000) - Math.round(start * 1000),
        bthOpcode(b, 0),
        bthPsn(b, 0),
        bthDestQp(b, 0),
        ids ? ipId : -1,
        corrupt ? 'bad' : 'ok',
      ].join(),
    );
    // A bit that turned over may leave something that is no packet.
    const readable = expected.filter((line) => found.includes(line) || line.endsWith('ok'));
    expect(found).toEqual(readable);
    expect(summary.frames).toBe(middle.length);
  });
});

test('faults of the tap: packets missed, packets shown twice, frames cut', async () => {
  const { network, hosts } = runConnections(RUN);
  const all = tap(network, hosts[0]);
  const faulty = tap(network, hosts[0], { miss: 0.1, repeat: 0.2, seed: 3 });
  const repeated = faulty.filter((packet) => packet.repeated);
  expect(repeated.length / faulty.length).toBeCloseTo(0.2 / 1.2, 1);
  expect((faulty.length - repeated.length) / all.length).toBeCloseTo(0.9, 1);
  const { summary } = await read(tapCapture(faulty, { snapLength: 96 }));
  expect(summary.frames).toBe(faulty.length);
  expect(summary.cutFrames).toBeGreaterThan(faulty.length / 4);
});

test('marks are answered by CNPs, at most one for a queue pair in 50 µs', () => {
  const { network } = runConnections({ ...RUN, network: 'narrow', seed: 8 });
  const isCnp = ({ bytes }: { bytes: Uint8Array }) => bthOpcode(bytes, 0) === Opcode.CNP;
  const cnps = network.trace.filter((packet) => packet.event === 'sent' && isCnp(packet));
  const marked = network.trace.filter(
    ({ event, trafficClass }) => event === 'arrived' && (trafficClass & 3) === 3,
  );
  expect(marked.length).toBeGreaterThan(10);
  expect(cnps.length).toBeGreaterThan(0);
  for (const [i, { time, bytes, source }] of cnps.entries()) {
    const sameQp = cnps
      .slice(0, i)
      .findLast(
        (other) => gidEquals(other.source, source) && bthDestQp(other.bytes, 0) === bthDestQp(bytes, 0),
      );
    expect(time - (sameQp?.time ?? Number.NEGATIVE_INFINITY)).toBeGreaterThanOrEqual(50);
  }
});

test('model and engine both report causes: all causes occur', () => {
  const causes = new Map<string, Set<string>>();
  for (let seed = 1; seed <= 12; seed++) {
    for (const ends of [
      ['engine', 'engine'],
      ['model', 'model'],
    ] as const) {
      // Where there are probes, the ACK timer hardly ever runs out.
      const { network } = runConnections({ ...RUN, seed, ends, connections: 2, probes: seed % 4 > 0 });
      const said = causes.get(ends[0]) ?? new Set();
      for (const { retransmission } of network.trace) if (retransmission) said.add(retransmission);
      causes.set(ends[0], said);
    }
  }
  const byTheRules = ['implied-nak', 'rnr', 'sequence-nak', 'timeout'];
  expect([...causes.get('engine')!].sort()).toEqual([...byTheRules, 'probe'].sort());
  expect([...causes.get('model')!].sort()).toEqual(byTheRules);
});

test('the same seed gives the same capture', () => {
  const [first, second] = [1, 2].map(() => {
    const { network, hosts } = runConnections(RUN);
    return tapCapture(tap(network, hosts[1]));
  });
  expect(Buffer.compare(first, second)).toBe(0);
});
