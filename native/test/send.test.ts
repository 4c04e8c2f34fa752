/** `send` with wrong slots, and on a kernel that refuses. */
import { constants } from 'node:os';
import { FRAGMENT_WORDS, Fragment, TX_SLOT_WORDS, Tx } from '@node-roce/transport';
import { gidFromText } from '@node-roce/wire';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { copyBatch, features, Port, Socket } from '../index.js';
import { allOk, pattern, psnOf, Station } from './support.ts';

const { EFAULT, EINVAL, EMSGSIZE, ENETUNREACH, EHOSTUNREACH } = constants.errno;

let from: Station;
let to: Station;
let peer: number;
let region: number;

beforeEach(() => {
  from = new Station('127.0.0.1', ownPort);
  to = new Station('127.0.0.2', ownPort);
  peer = from.peer('127.0.0.2', ownPort);
  region = from.regions.add(pattern(1 << 20));
});
afterEach(() => {
  from.close();
  to.close();
});

/** Three packets, the middle one changed by `spoil`: the other two go, it gets an errno. */
function spoilt(spoil: (slot: Uint32Array, fragment: Uint32Array) => void): number {
  for (let i = 0; i < 3; i++) from.add({ peer, fragments: [[region, i, 100]] });
  spoil(
    from.tx.slots.subarray(TX_SLOT_WORDS, 2 * TX_SLOT_WORDS),
    from.tx.fragments.subarray(FRAGMENT_WORDS, 2 * FRAGMENT_WORDS),
  );
  const { taken, status } = from.flush();
  expect(taken).toBe(3);
  expect([status[0], status[2]]).toEqual([0, 0]);
  const packets = to.receive();
  expect(packets.map(psnOf)).toEqual([0, 2]);
  expect(allOk(packets)).toBe(true);
  expect(from.port.stats()).toMatchObject({ sendRejected: 1, txPackets: 2 });
  return status[1];
}

test.each<[string, number, (slot: Uint32Array, fragment: Uint32Array) => void]>([
  ['a header that is too short', EINVAL, (slot) => (slot[Tx.HEADER_LENGTH] = 11)],
  ['a header that is too long', EINVAL, (slot) => (slot[Tx.HEADER_LENGTH] = 65)],
  ['a header outside', EFAULT, (slot) => (slot[Tx.HEADER_OFFSET] = 512 * 64 - 11)],
  ['a header far outside', EFAULT, (slot) => (slot[Tx.HEADER_OFFSET] = 0xffff_ffff)],
  ['a pad of 4', EINVAL, (slot) => (slot[Tx.PAD] = 4)],
  ['no such peer', EINVAL, (slot) => (slot[Tx.PEER] = 1)],
  ['a traffic class of 256', EINVAL, (slot) => (slot[Tx.TRAFFIC_CLASS] = 256)],
  ['a source port of 65536', EINVAL, (slot) => (slot[Tx.SOURCE_PORT] = 65_536)],
  ['a sum that is not right', EINVAL, (slot) => (slot[Tx.PAYLOAD_LENGTH] = 99)],
  ['fragments outside of the table', EFAULT, (slot) => (slot[Tx.FRAGMENT_COUNT] = 5000)],
  ['more fragments than there can be', EFAULT, (slot) => (slot[Tx.FRAGMENT_COUNT] = 0xffff_ffff)],
  ['a first fragment outside', EFAULT, (slot) => (slot[Tx.FRAGMENT_FIRST] = 0xffff_ffff)],
  ['no such region', EFAULT, (_, fragment) => (fragment[Fragment.REGION] = 7)],
  ['no such region by far', EFAULT, (_, fragment) => (fragment[Fragment.REGION] = 0xffff_ffff)],
  ['a fragment past the end', EFAULT, (_, fragment) => (fragment[Fragment.OFFSET_LOW] = (1 << 20) - 99)],
  ['a fragment past 4 GiB', EFAULT, (_, fragment) => (fragment[Fragment.OFFSET_HIGH] = 1)],
  [
    'a fragment that wraps at 2^64',
    EFAULT,
    (_, fragment) => {
      fragment[Fragment.OFFSET_HIGH] = 0xffff_ffff;
      fragment[Fragment.OFFSET_LOW] = 0xffff_ffff;
    },
  ],
  [
    'a packet over 65,507 bytes',
    EMSGSIZE,
    (slot, fragment) => {
      slot[Tx.PAYLOAD_LENGTH] = 65_492;
      fragment[Fragment.LENGTH] = 65_492;
    },
  ],
  ['lengths that wrap at 2^32', EMSGSIZE, (slot) => (slot[Tx.PAYLOAD_LENGTH] = 0xffff_fff0)],
])('%s', (_name, errno, spoil) => {
  expect(spoilt(spoil)).toBe(errno);
});

test('a detached region', () => {
  const gone = from.regions.add(pattern(1000));
  const view = from.regions.views[gone] as Uint8Array;
  structuredClone(view.buffer, { transfer: [view.buffer as ArrayBuffer] });
  expect(spoilt((_, fragment) => (fragment[Fragment.REGION] = gone))).toBe(EFAULT);
});

test('a region that a getter among the views detaches while the batch is read', () => {
  const victim = from.regions.add(pattern(100_000));
  const trap = from.regions.add(pattern(1000));
  const view = from.regions.views[victim] as Uint8Array;
  Object.defineProperty(from.regions.views, trap, {
    get() {
      if (view.length > 0) structuredClone(view.buffer, { transfer: [view.buffer as ArrayBuffer] });
      return undefined;
    },
  });
  from.add({ peer, fragments: [[victim, 0, 4096]] });
  from.add({ peer, fragments: [[trap, 0, 100]] });
  expect(from.flush().status).toEqual([EFAULT, EFAULT]);
});

test('a getter among the views that sends: refused, and the batch that it interrupts is whole', () => {
  const many = 4000;
  const views = Array.from({ length: many }, () => new Uint8Array(8));
  const slot = Uint32Array.of(0, 12, 0, many, many, 0, peer, 0, 0xc001, 0, 0, 0, 1);
  const fragments = new Uint32Array(4 * many);
  for (let i = 0; i < many; i++) fragments.set([i, 0, 0, 1], 4 * i);
  const first = from.regions.views[region];
  const errors: unknown[] = [];
  Object.defineProperty(from.regions.views, region, {
    get() {
      try {
        from.port.send(slot, new Uint8Array(64), fragments, 0, 1, views, new Uint8Array(many));
      } catch (error) {
        errors.push(error);
      }
      return first;
    },
  });
  const other = from.regions.add(pattern(1000));
  from.add({ peer, fragments: [[region, 0, 100]] });
  from.add({ peer, fragments: [[other, 0, 100]] });
  expect(from.flush()).toEqual({ taken: 2, status: [0, 0] });
  expect(errors).toEqual([expect.objectContaining({ code: 'ERR_INVALID_ARG_TYPE' })]);
  const packets = to.receive();
  expect(packets.map(psnOf)).toEqual([0, 1]);
  expect(allOk(packets)).toBe(true);
});

test('copyBatch: a getter among the views that copies is refused', () => {
  const many = 4000;
  const list = (n: number) =>
    Uint32Array.from({ length: 5 * n }, (_, i) => [0, Math.floor(i / 5), 0, 0, 1][i % 5]);
  const views = Array.from({ length: many }, () => new Uint8Array(8));
  const few = [new Uint8Array(8), new Uint8Array(8)];
  const second = few[1];
  const again = vi.fn(() => copyBatch(new Uint8Array(64), views, list(many), many));
  Object.defineProperty(few, 0, {
    get() {
      expect(again).toThrow(TypeError);
      return new Uint8Array(8);
    },
  });
  expect(copyBatch(Uint8Array.of(7), few, list(2), 2)).toBe(2);
  expect(again).toHaveBeenCalledOnce();
  expect(second[0]).toBe(7);
});

test('over 256 fragments with bytes in them', () => {
  const many = (n: number) =>
    Array.from({ length: n }, (_, i): [number, number, number] => [region, 300 * i, 200]);
  from.add({ peer, fragments: many(256) });
  from.add({ peer, fragments: many(257) });
  expect(from.flush().status).toEqual([0, EINVAL]);
  expect(allOk(to.receive())).toBe(true);
});

test('pieces by reference and copied ones, in turns', () => {
  // 2049 bytes and more are gathered by reference: 31 of them are as many as a message can have.
  const mixed = (n: number): [number, number, number][] =>
    Array.from({ length: n }, (_, i) => [region, 3000 * i, i % 2 === 0 ? 2049 : 40]);
  for (const n of [62, 62, 31, 3, 3, 3, 3, 3, 3, 3, 3, 3]) from.add({ peer, fragments: mixed(n) });
  for (let i = 0; i < 30; i++) {
    from.add({ peer, fragments: Array.from({ length: 100 }, (_, k) => [region, 1000 * k, 300]) });
  }
  expect(from.flush().status.every((s) => s === 0)).toBe(true);
  const packets = to.receive();
  expect(packets.map(psnOf)).toEqual([...Array(42).keys()]);
  expect(allOk(packets)).toBe(true);
  const expected = mixed(62).map(([, at, n]) =>
    (from.regions.views[region] as Uint8Array).subarray(at, at + n),
  );
  expect(Buffer.compare(packets[1].payload, Buffer.concat(expected))).toBe(0);
});

test('a peer that cannot be reached stalls nobody', () => {
  // 240.0.0.0/4 is reserved: Linux has no route from loopback, or refuses the address.
  const nowhere = from.peer('240.0.0.1', ownPort);
  const expected: number[] = [];
  for (let i = 0; i < 60; i++) {
    const lost = i % 3 === 1;
    from.add({ peer: lost ? nowhere : peer, fragments: [[region, i, 1000]] });
    if (!lost) expected.push(i);
  }
  const { taken, status } = from.flush();
  expect(taken).toBe(60);
  for (const [i, errno] of status.entries()) {
    if (i % 3 === 1) expect([ENETUNREACH, EHOSTUNREACH, EINVAL]).toContain(errno);
    else expect(errno).toBe(0);
  }
  const packets = to.receive();
  expect(packets.map(psnOf)).toEqual(expected);
  expect(allOk(packets)).toBe(true);
  expect(from.port.stats().sendErrors).toBe(20);
});

test('every source port has its socket, up to the pool’s size, and the ICRC follows', () => {
  from.close();
  from = new Station('127.0.0.1', ownPort, { transmitSockets: 4 });
  peer = from.peer('127.0.0.2', ownPort);
  for (let round = 0; round < 2; round++) {
    for (let i = 0; i < 40; i++) from.add({ peer, sourcePort: 0xc100 + i });
    from.flush();
    const packets = to.receive();
    expect(packets.length).toBe(40);
    expect(allOk(packets)).toBe(true);
    expect(new Set(packets.map((p) => p.sourcePort)).size).toBe(4);
    expect(
      packets
        .map((p) => p.sourcePort)
        .slice(0, 4)
        .sort(),
    ).toEqual([0xc100, 0xc101, 0xc102, 0xc103]);
    expect(from.port.stats().transmitSockets).toBe(4);
  }
});

test('a source port that is taken is replaced, the port’s own is used only when asked for', () => {
  const taken = new Socket({ family: 4, address: '127.0.0.1', port: 0xc200 });
  try {
    from.add({ peer, sourcePort: 0xc200 });
    from.flush();
    const [elsewhere] = to.receive();
    expect(elsewhere.verdict).toBe(0);
    expect([0xc200, ownPort]).not.toContain(elsewhere.sourcePort);
    from.add({ peer, sourcePort: 0 });
    from.add({ peer, sourcePort: ownPort });
    from.flush();
    const packets = to.receive();
    expect(allOk(packets)).toBe(true);
    expect(packets.map((p) => p.sourcePort)).toEqual([elsewhere.sourcePort, ownPort]);
  } finally {
    taken.close();
  }
});

test('runs end where peer, port, class or size change', () => {
  const other = from.peer('127.0.0.2', ownPort, 63);
  const packet = (more: object) => from.add({ peer, fragments: [[region, 0, 1000]], ...more });
  packet({});
  packet({});
  packet({ peer: other });
  packet({ peer: other });
  packet({ sourcePort: 0xc002 });
  packet({ sourcePort: 0xc002, trafficClass: 8 });
  packet({ sourcePort: 0xc002, trafficClass: 8, fragments: [[region, 0, 1004]] });
  packet({ sourcePort: 0xc002, trafficClass: 8, fragments: [[region, 0, 1004]] });
  from.flush();
  const packets = to.receive();
  expect(packets.map(psnOf).sort()).toEqual([...Array(8).keys()]);
  expect(allOk(packets)).toBe(true);
  expect(from.port.stats().txMessages).toBe(features().gso ? 5 : 8);
});

test('packets of many queue pairs to one address share a run, unless their QPNs may be of several programs', () => {
  from.close();
  from = new Station('127.0.0.1', ownPort, { transmitSockets: 1 });
  const memory = from.regions.add(new Uint8Array(1000));
  const peers = [1, 2, 3].map(() => from.peer('127.0.0.2', ownPort));
  const packet = (i: number, destQp: number, opcode = 4) => {
    const slot = from.add({ peer: peers[i % 3], sourcePort: 0xc001 + i, fragments: [[memory, 0, 1000]] });
    const at = slot * 64;
    from.tx.headers[at] = opcode;
    from.tx.headers.set([destQp >> 16, destQp >> 8, destQp], at + 5);
  };
  const messagesOf = (destQps: number[], opcode?: number) => {
    const before = from.port.stats().txMessages;
    for (const [i, destQp] of destQps.entries()) packet(i, destQp, i === 0 ? undefined : opcode);
    from.flush();
    const packets = to.receive();
    expect(packets.map(psnOf)).toEqual([...destQps.keys()]);
    expect(allOk(packets)).toBe(true);
    return from.port.stats().txMessages - before;
  };
  const { gso } = features();
  expect(messagesOf([0x11, 0x7f_fffe, 0x22_2222])).toBe(gso ? 1 : 3);
  expect(messagesOf([0x80_0011, 0x80_0012, 0x90_0012])).toBe(gso ? 2 : 3);
  expect(messagesOf([0x11, 0x80_0012])).toBe(2);
  expect(messagesOf([0x11, 0x12], 0x64)).toBe(2);
});

test('packets too long to share a message go alone', () => {
  for (let i = 0; i < 3; i++) from.add({ peer, fragments: [[region, 0, 65_507 - 16 - 3]] });
  expect(from.flush().status).toEqual([0, 0, 0]);
  expect(from.port.stats()).toMatchObject({ gsoRuns: 0, txMessages: 3 });
  expect(allOk(to.receive())).toBe(true);
});

test('setPeerGso switches runs off and on for one peer', () => {
  from.port.setPeerGso(peer, false);
  for (let i = 0; i < 4; i++) from.add({ peer, fragments: [[region, 0, 1000]] });
  from.flush();
  expect(from.port.stats()).toMatchObject({ gsoRuns: 0, txMessages: 4 });
  from.port.setPeerGso(peer, true);
  for (let i = 0; i < 4; i++) from.add({ peer, fragments: [[region, 0, 1000]] });
  from.flush();
  expect(from.port.stats().gsoRuns).toBe(features().gso ? 1 : 0);
  expect(to.receive().length).toBe(8);
});

test('peers and locals are checked when added', () => {
  const address = gidFromText('127.0.0.2');
  expect(() => from.port.addPeer({ address: address.subarray(1), local: 0 })).toThrow(TypeError);
  expect(() => from.port.addPeer({ address, local: 1 })).toThrow(RangeError);
  expect(() => from.port.addPeer({ address, local: 0, hopLimit: 256 })).toThrow(RangeError);
  expect(() => from.port.addPeer({ address: gidFromText('::1'), local: 0 })).toThrow(RangeError);
  expect(() => from.port.addPeer({ address: gidFromText('0.0.0.0'), local: 0 })).toThrow(RangeError);
  expect(() => from.port.addLocal(from.socket)).toThrow(RangeError);
  expect(() => from.port.removeLocal(0)).toThrow(RangeError);
  expect(() => from.port.removePeer(99)).toThrow(RangeError);
  const anywhere = new Socket({ family: 4, address: '0.0.0.0', port: 0 });
  expect(() => from.port.addLocal(anywhere)).toThrow(RangeError);
  anywhere.close();
  expect(() => from.port.addLocal(anywhere)).toThrow(RangeError);
  const small = new Port({ maxPeers: 1 });
  small.addLocal(from.socket);
  small.addPeer({ address, local: 0 });
  expect(() => small.addPeer({ address, local: 0 })).toThrow(RangeError);
  small.close();
  expect(() => small.addPeer({ address, local: 0 })).toThrow(
    expect.objectContaining({ code: 'ERR_ROCE_PORT_CLOSED' }),
  );
  expect(small.stats().txPackets).toBe(0);
});
