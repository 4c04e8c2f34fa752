/** Causes of retransmissions, as the host gets them. */
import { bthOpcode, bthPsn, Opcode, opcodeInfo } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { type Packet, Pair } from '../../../testing/pair.ts';

const FIRST = 0x10;
const MTU = 1024;

interface Told {
  psn: number;
  cause: string;
}

/** A pair whose left side reports what it retransmits; `lost` selects the packets that vanish, once each. */
function watched(lost: (packet: Packet, fromLeft: boolean) => boolean) {
  const told: Told[] = [];
  const pair = new Pair({
    mtu: MTU,
    psn: [FIRST, 0x100],
    left: { onRetransmit: (qpn, psn, cause) => told.push({ psn, cause: qpn === leftQpn() ? cause : '?' }) },
  });
  const leftQpn = () => pair.left.qp.qpn;
  const gone = new Set<string>();
  pair.fault = (packet) => {
    const fromLeft = opcodeInfo(bthOpcode(packet, 0))!.isRequest;
    const name = `${bthOpcode(packet, 0)} ${bthPsn(packet, 0)}`;
    if (!gone.has(name) && lost(packet, fromLeft)) {
      gone.add(name);
      return [];
    }
    return [{ packet, delay: 10 }];
  };
  const local = pair.left.register(new ArrayBuffer(1 << 16));
  const remote = pair.right.register(new ArrayBuffer(1 << 16));
  const write = (length: number) =>
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length }], remote });
  const read = (length: number) =>
    pair.left.post({ opcode: 'RDMA_READ', sge: [{ mr: local, length }], remote });
  const send = (length: number) => pair.left.post({ opcode: 'SEND', sge: [{ mr: local, length }] });
  return { pair, told, local, remote, write, read, send };
}

const from = (first: number, last: number, cause: string): Told[] =>
  Array.from({ length: last - first + 1 }, (_, i) => ({ psn: first + i, cause }));

test('nothing lost: reports nothing', () => {
  const { pair, told, write } = watched(() => false);
  write(10 * MTU);
  pair.run();
  expect(told).toEqual([]);
});

test('a packet in the middle: all from it on, for the NAK', () => {
  const { pair, told, write } = watched((packet, fromLeft) => fromLeft && bthPsn(packet, 0) === FIRST + 2);
  write(6 * MTU);
  pair.run();
  expect(told).toEqual(from(FIRST + 2, FIRST + 5, 'sequence-nak'));
});

test('the very first packet, before a round trip was measured: the timer', () => {
  const { pair, told, write } = watched((packet, fromLeft) => fromLeft && bthPsn(packet, 0) === FIRST);
  write(MTU);
  pair.run();
  expect(told).toEqual(from(FIRST, FIRST, 'timeout'));
});

test('a lost tail, after a round trip was measured: the probe', () => {
  const { pair, told, write } = watched((packet, fromLeft) => fromLeft && bthPsn(packet, 0) === FIRST + 3);
  write(3 * MTU);
  pair.run();
  write(MTU);
  pair.run();
  expect(told).toEqual(from(FIRST + 3, FIRST + 3, 'probe'));
});

test('a READ response, and a later one arrives: the READ asks again for the rest', () => {
  const { pair, told, read } = watched(
    (packet, fromLeft) => !fromLeft && bthPsn(packet, 0) === FIRST + 1 && bthOpcode(packet, 0) === MIDDLE,
  );
  read(4 * MTU);
  pair.run();
  expect(told).toEqual(from(FIRST + 1, FIRST + 1, 'implied-nak'));
});

const MIDDLE = Opcode.RC_RDMA_READ_RESPONSE_MIDDLE;

test('no receive posted: after the wait', () => {
  const { pair, told, send, remote } = watched(() => false);
  send(2 * MTU);
  pair.run(pair.now + 300);
  pair.right.postRecv(1, [{ mr: remote, length: 1 << 16 }]);
  pair.run();
  expect(told.length).toBeGreaterThan(0);
  expect(new Set(told.map(({ cause }) => cause))).toEqual(new Set(['rnr']));
});

test('a probe that the timer overtook is not reported: the packet is retransmitted once', () => {
  const told: Told[] = [];
  const pair = new Pair({
    psn: [FIRST, 0x100],
    // The timer runs 16.8 ms, much longer than it takes until the probe.
    attr: { timeout: 11 },
    left: { onRetransmit: (_qpn, psn, cause) => told.push({ psn, cause }) },
  });
  const mr = pair.left.register(new ArrayBuffer(4096));
  const remote = pair.right.register(new ArrayBuffer(4096));
  const write = () => pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 64 }], remote });
  write();
  pair.run();
  let sent = 0;
  pair.fault = (packet) => {
    if (!opcodeInfo(bthOpcode(packet, 0))!.isRequest) return [{ packet, delay: 10 }];
    // Both packets and the probe are lost; what the timer sends arrives, the second packet a while later.
    sent++;
    return sent <= 3 ? [] : [{ packet, delay: bthPsn(packet, 0) === FIRST + 2 ? 20 : 10 }];
  };
  write();
  write();
  pair.run();
  expect(told).toEqual([
    { psn: FIRST + 2, cause: 'probe' },
    { psn: FIRST + 1, cause: 'timeout' },
    { psn: FIRST + 2, cause: 'timeout' },
  ]);
});

test('reports as many as are counted', () => {
  let n = 0;
  const { pair, told, write, read } = watched(() => n++ % 7 === 3);
  for (let i = 0; i < 8; i++) {
    write(5 * MTU);
    read(3 * MTU);
  }
  pair.run();
  expect(told.length).toBeGreaterThan(10);
  expect(pair.left.adapter.qpCounters(pair.left.qp.qpn).retransmittedPackets).toBe(told.length);
});
