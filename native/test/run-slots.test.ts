/** Run slots (`Tx.RUN`): on the wire they are what their packets are with a slot each, byte for byte; and no content of the slots does harm. */
import { constants } from 'node:os';
import { FRAGMENT_WORDS, Fragment, NO_PEER, TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx } from '@node-roce/transport';
import { createRandom } from '@node-roce/wire';
import { afterEach, expect, test } from 'vitest';
import { hasIpv6, ownPort } from '../../packages/link/testing/loopback.ts';
import { features, type PortOptions } from '../index.js';
import { pattern, psnOf, Station } from './support.ts';

const { EFAULT, EINVAL } = constants.errno;
const STALE = 0xdead_beef;
const stations: Station[] = [];

afterEach(() => {
  for (const station of stations.splice(0)) station.close();
});

function open([here, there]: string[], options: PortOptions = {}) {
  const port = here === there ? ownPort + 1 : ownPort;
  const from = new Station(here, ownPort, options);
  const to = new Station(there, port);
  stations.push(from, to);
  return { from, to, peer: from.peer(there, port), other: from.peer(there, port, 9) };
}

/** The packets in [first, first + packets) become a run: its other slots are not written. */
function makeRun({ tx }: Station, first: number, packets: number): void {
  const w = first * TX_SLOT_WORDS;
  tx.slots[w + Tx.RUN] = packets;
  tx.slots.fill(STALE, w + TX_SLOT_WORDS, w + packets * TX_SLOT_WORDS);
  tx.headers.fill(0xff, (first + 1) * TX_HEADER_STRIDE, (first + packets) * TX_HEADER_STRIDE);
}

/** Sends batches of a seed. @returns the datagrams as they arrived, ICRC included, and all that is known of each */
function arrived(addresses: string[], seed: number, runs: boolean) {
  const { between } = createRandom(seed);
  const options = [{}, {}, {}, { maxSegments: 5 }, { gso: false }, { transmitSockets: 1 }][between(0, 5)];
  const { from, to, peer, other } = open(addresses, options);
  const own = from.regions.add(pattern(1 << 20));
  const shared = from.regions.add(pattern(1 << 20, new SharedArrayBuffer(1 << 20)));
  const packets: unknown[] = [];
  let psn = 0xff_ffc0;
  for (let batch = 0; batch < 4; batch++) {
    const groups: [first: number, packets: number][] = [];
    for (let count = 0; count < 120; ) {
      const most = Math.min(between(0, 3) === 0 ? 1 : 70, 120 - count);
      const number = between(1, most);
      const length = [1, 64, 65, 256, 255, 300, 512, 1024, 2048, 2049, 4096][between(0, 10)];
      const packet = {
        peer: between(0, 5) === 0 ? other : peer,
        headerLength: [12, 12, 12, 16, 28][between(0, 4)],
        trafficClass: between(0, 5) === 0 ? 8 : 0,
        sourcePort: 0xc001 + between(0, 1),
      };
      groups.push([count, number]);
      const flags = between(0, 1) << 7;
      for (let i = 0; i < number; i++) {
        const region = between(0, 3) === 0 ? shared : own;
        const slot = from.add({ ...packet, psn, fragments: [[region, between(0, 1_000_000), length]] });
        // Solicited, and asking for an ACK.
        from.tx.headers[slot * TX_HEADER_STRIDE + 1] |= flags;
        from.tx.headers[slot * TX_HEADER_STRIDE + 8] |= flags;
        psn = (psn + 1) & 0xff_ffff;
      }
      count += number;
    }
    if (runs) for (const [first, number] of groups) if (number > 1) makeRun(from, first, number);
    const { taken, status } = from.flush();
    expect([taken, status.filter((errno) => errno !== 0)]).toEqual([120, []]);
    for (let more = to.receiveOnce(); more.length > 0; more = to.receiveOnce()) {
      for (const { source, bytes, payload, ...rest } of more) {
        packets.push({ ...rest, source: [...source].join(), bytes: Buffer.from(bytes).toString('base64') });
      }
    }
  }
  const { txPackets, txBytes, txMessages, runSlots } = from.port.stats();
  expect(packets.length).toBe(480);
  expect(runSlots > 0).toBe(runs);
  for (const station of stations.splice(0)) station.close();
  return { packets, stats: { txPackets, txBytes, txMessages } };
}

test.each([['IPv4', '127.0.0.1', '127.0.0.2'], ...(hasIpv6 ? [['IPv6', '::1', '::1']] : [])])(
  'the same packets in the same messages as with a slot each: %s',
  (_, ...addresses) => {
    for (let seed = 1; seed <= 12; seed++)
      expect(arrived(addresses, seed, true), `seed ${seed}`).toEqual(arrived(addresses, seed, false));
  },
);

/** A run of ten packets between two of their own, changed by `spoil`. @returns the status of each, and the PSNs that arrived */
function spoilt(spoil: (slot: Uint32Array, fragments: Uint32Array, station: Station) => void, count = 12) {
  const { from, to, peer } = open(['127.0.0.1', '127.0.0.2']);
  const region = from.regions.add(pattern(4096));
  for (let i = 0; i < 12; i++) from.add({ peer, psn: i, fragments: [[region, i, 100]] });
  makeRun(from, 1, 10);
  spoil(from.tx.slots.subarray(TX_SLOT_WORDS), from.tx.fragments.subarray(FRAGMENT_WORDS), from);
  from.tx.count = count;
  const { taken, status } = from.flush();
  expect(taken).toBe(count);
  return { status, psns: to.receive().map(psnOf) };
}

const but = (...gone: number[]) => [...Array(12).keys()].filter((i) => !gone.includes(i));
const inRun = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

test('packets of a run that can not be sent: they alone are not', () => {
  const result = spoilt((_, fragments, { regions }) => {
    fragments[2 * FRAGMENT_WORDS + Fragment.LENGTH] = 99;
    fragments[4 * FRAGMENT_WORDS + Fragment.OFFSET_LOW] = 4000;
    fragments[5 * FRAGMENT_WORDS + Fragment.REGION] = 77;
    fragments[6 * FRAGMENT_WORDS + Fragment.OFFSET_HIGH] = 1;
    fragments[9 * FRAGMENT_WORDS + Fragment.REGION] = regions.add(new Uint8Array(4096));
  });
  expect(result.status).toEqual([0, 0, 0, EINVAL, 0, EFAULT, EFAULT, EFAULT, 0, 0, 0, 0]);
  expect(result.psns).toEqual(but(3, 5, 6, 7));
});

test.each<[string, (slot: Uint32Array) => void, number]>([
  ['no peer', (slot) => slot.fill(NO_PEER, Tx.PEER, Tx.PEER + 1), EINVAL],
  ['two fragments a packet', (slot) => slot.fill(2, Tx.FRAGMENT_COUNT, Tx.FRAGMENT_COUNT + 1), EINVAL],
  ['packets without payload', (slot) => slot.fill(0, Tx.PAYLOAD_LENGTH, Tx.PAYLOAD_LENGTH + 1), EINVAL],
  ['fragments behind the end', (slot) => slot.fill(4090, Tx.FRAGMENT_FIRST, Tx.FRAGMENT_FIRST + 1), EFAULT],
  [
    'a header outside of the headers',
    (slot) => slot.fill(1 << 20, Tx.HEADER_OFFSET, Tx.HEADER_OFFSET + 1),
    EFAULT,
  ],
])('a run that is wrong as a whole is refused as a whole: %s', (_, spoil, errno) => {
  const { status, psns } = spoilt(spoil);
  expect(status).toEqual([0, ...inRun.map(() => errno), 0]);
  expect(psns).toEqual([0, 11]);
});

test('a run that is longer than the batch ends with it', () => {
  const longer = (slot: Uint32Array) => slot.fill(0xffff_ffff, Tx.RUN, Tx.RUN + 1);
  // Its fragments are those of the batch: all are there.
  expect(spoilt(longer, 8)).toEqual({ status: Array(8).fill(0), psns: but(8, 9, 10, 11) });
});

test('without GSO, and to a peer whose way takes none, packets of a run leave one by one', () => {
  const { from, to, peer } = open(['127.0.0.1', '127.0.0.2']);
  const region = from.regions.add(pattern(4096));
  from.port.setPeerGso(peer, false);
  for (let i = 0; i < 20; i++) from.add({ peer, psn: i, fragments: [[region, i, 100]] });
  makeRun(from, 0, 20);
  expect(from.flush().status).toEqual(Array(20).fill(0));
  expect(to.receive().map(psnOf)).toEqual([...Array(20).keys()]);
  expect(from.port.stats()).toMatchObject({ txMessages: 20, runSlots: 1 });
});

test.runIf(features().gso)('a run and packets before and behind it share a message', () => {
  const { from, to, peer } = open(['127.0.0.1', '127.0.0.2']);
  const region = from.regions.add(pattern(4096));
  for (let i = 0; i < 30; i++) from.add({ peer, psn: i, fragments: [[region, i, i === 29 ? 60 : 100]] });
  makeRun(from, 3, 20);
  expect(from.flush().status).toEqual(Array(30).fill(0));
  const packets = to.receive();
  expect(packets.map(psnOf)).toEqual([...Array(30).keys()]);
  expect(from.port.stats()).toMatchObject({ txMessages: 1, runSlots: 1 });
});
