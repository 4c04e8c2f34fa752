import { constants } from 'node:os';
import { gidFromText } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { hasIpv6, ownPort } from '../../packages/link/testing/loopback.ts';
import { features, Socket, setCrcImplementation } from '../index.js';
import { allOk, pattern, psnOf, Station } from './support.ts';

// Linux has one IPv6 address on lo: both stations share it, on two ports.
const v6 = '::1';

test('packets to an address behind one that was removed arrive', () => {
  const [from, to] = ['127.0.0.1', '127.0.0.2'].map((address) => new Station(address, ownPort));
  const [removed, behind] = ['127.0.0.3', '127.0.0.4'].map(
    (address) => new Socket({ family: 4, address, port: ownPort }),
  );
  const index = to.port.addLocal(removed);
  to.port.addLocal(behind);
  to.port.removeLocal(index);
  from.add({ peer: from.peer('127.0.0.4', ownPort) });
  expect(from.flush().taken).toBe(1);
  expect(to.receive()).toHaveLength(1);
  for (const each of [from, to, removed, behind]) each.close();
});

describe.each([
  ['IPv4', '127.0.0.1', '127.0.0.2', ownPort, ownPort],
  ...(hasIpv6 ? ([['IPv6', v6, v6, ownPort, ownPort + 1]] as const) : []),
] as const)('%s', (_name, a, b, portA, portB) => {
  function stations(run: (from: Station, to: Station, peer: number) => void, options = {}, socket = {}) {
    const from = new Station(a, portA, options, socket);
    const to = new Station(b, portB, options, socket);
    try {
      to.peer(a, portA);
      run(from, to, from.peer(b, portB));
    } finally {
      from.close();
      to.close();
    }
  }

  test('every payload size from 0 to 4096, with its pad, in runs and alone', () => {
    stations((from, to, peer) => {
      const memory = pattern(8192);
      const region = from.regions.add(memory);
      for (let size = 0; size <= 4096; ) {
        const first = size;
        for (; size <= 4096 && size < first + 64; size++)
          from.add({ peer, psn: size, fragments: [[region, size, size]] });
        expect(from.flush().taken).toBe(size - first);
        const packets = to.receive();
        expect(packets.length).toBe(size - first);
        expect(allOk(packets)).toBe(true);
        packets.forEach((packet, i) => {
          expect(psnOf(packet)).toBe(first + i);
          const length = first + i;
          if (packet.bytes.length !== 12 + length + (-length & 3))
            expect.fail(`${length}: ${packet.bytes.length}`);
          if (Buffer.compare(packet.payload, memory.subarray(length, 2 * length)) !== 0)
            expect.fail(`${length}`);
        });
      }
    });
  });

  test('reports sender, destination, traffic class, hop limit and port', () => {
    stations((from, to) => {
      const peer = from.peer(b, portB, 33);
      from.add({ peer, trafficClass: 0x6a, sourcePort: 0xc0de });
      from.flush();
      const [packet] = to.receive();
      expect(packet).toMatchObject({
        peer: 0,
        local: 0,
        trafficClass: 0x6a,
        hopLimit: 33,
        verdict: 0,
        sourcePort: 0xc0de,
      });
      expect(packet.source).toEqual(gidFromText(a));
    });
  });

  test.skipIf(!features().gso)(
    'of messages that are not cut on their way, no Identification is solved for',
    () => {
      stations((from, to, peer) => {
        for (let i = 0; i < 3; i++) {
          for (let packet = 0; packet < 3; packet++) from.add({ peer });
          expect(from.flush().taken).toBe(3);
          expect(allOk(to.receive())).toBe(true);
        }
        expect(to.port.stats()).toMatchObject({ groRuns: 3, solved: 0 });
      });
    },
  );

  test('runs of equal packets go as one message, the last may be shorter', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(1 << 17));
      for (let i = 0; i < 14; i++) from.add({ peer, fragments: [[region, i * 4096, 4096]] });
      from.add({ peer, fragments: [[region, 3, 77]] });
      from.add({ peer, fragments: [[region, 0, 4096]] });
      expect(from.flush().taken).toBe(16);
      const packets = to.receive();
      expect(packets.map(psnOf)).toEqual([...Array(16).keys()]);
      expect(allOk(packets)).toBe(true);
      expect(packets[14].payload.length).toBe(77);
      if (features().gso)
        expect(from.port.stats()).toMatchObject({ txMessages: 2, gsoRuns: 1, txPackets: 16 });
      if (features().gro)
        expect(to.port.stats()).toMatchObject({ rxDatagrams: 2, groRuns: 1, rxPackets: 16 });
    });
  });

  test.each([
    ['GSO off', { gso: false }],
    ['UDP checksum 0', { udpChecksum: false }],
  ])('%s: every packet is a datagram', (_what, options) => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(1 << 16));
      for (let i = 0; i < 10; i++) from.add({ peer, fragments: [[region, i, 1024]] });
      from.flush();
      const packets = to.receive();
      expect(packets.length).toBe(10);
      expect(allOk(packets)).toBe(true);
      expect(from.port.stats()).toMatchObject({ txMessages: 10, gsoRuns: 0 });
      expect(to.port.stats().rxDatagrams).toBe(10);
    }, options);
  });

  test.runIf(features().gro)('a run is of equal packets with rising PSNs, and of one datagram', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(4096));
      const add = (psn: number, length = 64) => from.add({ peer, psn, fragments: [[region, 0, length]] });
      // Two datagrams: the wrap in the first, a gap, the same PSN again; the last packet is shorter.
      for (const psn of [0xff_fffe, 0xff_ffff, 0, 1, 3, 4, 4]) add(psn);
      add(5, 60);
      from.flush();
      add(6, 60);
      add(7, 60);
      from.flush();
      expect(to.receive().map(({ run }) => run)).toEqual([4, 1, 1, 1, 2, 1, 1, 1, 2, 1]);
    });
  });

  test('a packet in the middle for another queue pair is in no run with its neighbours', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(4096));
      for (let psn = 0; psn < 6; psn++) from.add({ peer, psn, fragments: [[region, 0, 64]] });
      from.tx.headers[3 * 64 + 7] ^= 1;
      from.flush();
      const packets = to.receive();
      if (features().gro) expect(packets.map(({ run }) => run)).toEqual([3, 1, 1, 1, 2, 1]);
      expect(packets.map(psnOf)).toEqual([0, 1, 2, 3, 4, 5]);
    });
  });

  test('more runs than a batch has slots for: the others wait in the socket', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(64));
      for (let run = 0; run < 40; run++) {
        for (let i = 0; i < 90; i++) from.add({ peer, psn: run * 90 + i, fragments: [[region, 0, 64]] });
        from.flush();
      }
      expect(to.receive().map(psnOf)).toEqual([...Array(3600).keys()]);
      expect(to.port.stats()).toMatchObject({ overruns: 0, rxPackets: 3600 });
    });
  });

  test('a socket without GRO takes a run apart', () => {
    stations(
      (from, to, peer) => {
        const region = from.regions.add(pattern(1 << 16));
        for (let i = 0; i < 10; i++) from.add({ peer, psn: i, fragments: [[region, i, 1024]] });
        from.flush();
        const packets = to.receive();
        expect(packets.map(psnOf)).toEqual([...Array(10).keys()]);
        expect(allOk(packets)).toBe(true);
        expect(to.port.stats()).toMatchObject({ rxDatagrams: 10, groRuns: 0 });
      },
      {},
      { gro: false },
    );
  });

  test('packets gathered from many fragments, empty ones among them', () => {
    stations((from, to, peer) => {
      const memory = pattern(1 << 16);
      const regions = [from.regions.add(memory), from.regions.add(pattern(1 << 16).reverse())];
      const lengths = [0, 1, 0, 256, 257, 300, 0, 2, 513, 0];
      for (let i = 0; i < 8; i++) {
        from.add({ peer, fragments: lengths.map((n, k) => [regions[(k + i) % 2], 100 * k + i, n]) });
      }
      from.flush();
      const packets = to.receive();
      expect(allOk(packets)).toBe(true);
      packets.forEach((packet, i) => {
        const expected = lengths.map((n, k) =>
          (from.regions.views[regions[(k + i) % 2]] as Uint8Array).subarray(100 * k + i, 100 * k + i + n),
        );
        expect(Buffer.compare(packet.payload, Buffer.concat(expected))).toBe(0);
      });
    });
  });

  test('headers of every length from 12 to 64', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(4096));
      for (let length = 12; length <= 64; length++)
        from.add({ peer, headerLength: length, fragments: [[region, 0, 1000]] });
      from.flush();
      const packets = to.receive();
      expect(packets.length).toBe(53);
      expect(allOk(packets)).toBe(true);
    });
  });

  test('the longest datagram', () => {
    stations((from, to, peer) => {
      const region = from.regions.add(pattern(65_507));
      const longest = a === v6 ? 65_536 - 48 - 16 : 65_507 - 16 - 3; // IPv6: the MTU of lo
      from.add({ peer, fragments: [[region, 0, longest]] });
      from.add({ peer, fragments: [[region, 0, longest + 1]] });
      from.add({ peer, fragments: [[region, 0, 65_507 - 16]] });
      expect(from.flush()).toEqual({
        taken: 3,
        status: [0, constants.errno.EMSGSIZE, constants.errno.EMSGSIZE],
      });
      const packets = to.receive();
      expect(packets.map((packet) => packet.payload.length)).toEqual([longest]);
      expect(allOk(packets)).toBe(true);
    });
  });

  test.each(['table', 'pclmul', 'vpclmul', 'arm'] as const)('with the CRC of %s', (name) => {
    const before = features().crc;
    try {
      setCrcImplementation(name);
    } catch {
      return; // not on this processor; crc.test.ts checks which must be there
    }
    try {
      stations((from, to, peer) => {
        const region = from.regions.add(pattern(1 << 16));
        for (let i = 0; i < 30; i++) from.add({ peer, fragments: [[region, i, i * 100]] });
        from.flush();
        setCrcImplementation(before);
        expect(to.receive().filter((p) => p.verdict === 0).length).toBe(30);
      });
    } finally {
      setCrcImplementation(before);
    }
  });
});

test('several local addresses of one port', () => {
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort);
  const second = new Station('127.0.0.3', ownPort);
  try {
    expect(to.port.addLocal(second.socket)).toBe(1);
    const peers = ['127.0.0.2', '127.0.0.3'].map((address) => from.peer(address, ownPort));
    for (let i = 0; i < 20; i++) from.add({ peer: peers[i % 2] });
    from.flush();
    const packets = to.receive();
    expect(allOk(packets)).toBe(true);
    for (const local of [0, 1]) {
      expect(packets.filter((p) => p.local === local).map(psnOf)).toEqual(
        [...Array(10)].map((_, i) => 2 * i + local),
      );
    }
    to.port.removeLocal(1);
    from.add({ peer: peers[1] });
    from.add({ peer: peers[0] });
    from.flush();
    expect(to.receive().map(psnOf)).toEqual([1]);
  } finally {
    for (const station of [from, to, second]) station.close();
  }
});

test('strangers are heard too, as nobody', () => {
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort);
  try {
    const peer = from.peer('127.0.0.2', ownPort);
    from.add({ peer });
    from.flush();
    expect(to.receive()).toMatchObject([{ peer: -1, verdict: 0 }]);
    const known = to.peer('127.0.0.1', ownPort);
    from.add({ peer });
    from.flush();
    expect(to.receive()).toMatchObject([{ peer: known, verdict: 0 }]);
    to.port.removePeer(known);
    from.add({ peer });
    from.flush();
    expect(to.receive()).toMatchObject([{ peer: -1, verdict: 0 }]);
  } finally {
    from.close();
    to.close();
  }
});
