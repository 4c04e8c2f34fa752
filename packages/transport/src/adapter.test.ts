import {
  AethKind,
  aethKind,
  aethSyndrome,
  bthOpcode,
  bthPsn,
  createRandom,
  NakCode,
  Opcode,
} from '@node-roce/wire';
import { expect, test } from 'vitest';
import { type Packet, Pair, type WorkInit } from '../testing/pair.ts';
import { Access, SendFlags, WcFlags, WcOpcode } from './constants.ts';
import { RETRY_TIMER_FACTOR } from './requester/ack-timer.ts';

function pattern(length: number, salt = 1): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < length; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + salt) & 0xff;
  return bytes;
}

/** Far quicker than `toEqual` on long arrays. */
const same = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0;

/** A pair with a buffer registered on each side. */
function setUp(options: ConstructorParameters<typeof Pair>[0] = {}, size = 1 << 20) {
  const pair = new Pair(options);
  const source = pattern(size);
  const target = new Uint8Array(size);
  const local = pair.left.register(source.buffer);
  const remote = pair.right.register(target.buffer);
  return { pair, source, target, local, remote };
}

const opcodes = (pair: Pair, side: Pair['left']) =>
  pair.sent.filter((s) => s.from === side).map((s) => bthOpcode(s.packet, 0));

for (const mtu of [256, 512, 1024, 2048, 4096]) {
  for (const length of [0, 1, 3, mtu - 1, mtu, mtu + 1, 3 * mtu, 3 * mtu + 5, 100_001]) {
    test(`SEND, WRITE and READ of ${length} bytes at path MTU ${mtu}`, () => {
      const { pair, source, target, local, remote } = setUp({ mtu });
      pair.right.postRecv(7, [{ mr: remote, offset: 0, length: 200_000 }]);
      const sge = [{ mr: local, offset: 3, length }];
      pair.left.post({ wrId: 1, opcode: 'SEND', sge });
      pair.left.post({
        wrId: 2,
        opcode: 'RDMA_WRITE',
        sge,
        remote: { addr: remote.addr + 300_001n, rkey: remote.rkey },
      });
      pair.run();
      expect(pair.left.poll().map((c) => [c.wrId, c.status])).toEqual([
        [1, 'SUCCESS'],
        [2, 'SUCCESS'],
      ]);
      expect(pair.right.poll()).toMatchObject([
        { wrId: 7, status: 'SUCCESS', byteLen: length, opcode: WcOpcode.RECV },
      ]);
      const wanted = source.subarray(3, 3 + length);
      expect(target.subarray(0, length)).toEqual(wanted);
      expect(target.subarray(300_001, 300_001 + length)).toEqual(wanted);
      expect(target.subarray(length, 300_001).every((b) => b === 0)).toBe(true);
      expect(target.subarray(300_001 + length).every((b) => b === 0)).toBe(true);

      target.set(pattern(length, 99), 500_000);
      pair.left.post({
        wrId: 3,
        opcode: 'RDMA_READ',
        sge: [{ mr: local, offset: 600_000, length }],
        remote: { addr: remote.addr + 500_000n, rkey: remote.rkey },
      });
      pair.run();
      expect(pair.left.poll()).toMatchObject([
        { wrId: 3, status: 'SUCCESS', byteLen: length, opcode: WcOpcode.RDMA_READ },
      ]);
      expect(source.subarray(600_000, 600_000 + length)).toEqual(pattern(length, 99));
      expect(pair.left.adapter.counters().retransmittedPackets).toBe(0);
    });
  }
}

test('immediate data, solicited, gather and scatter lists, inline', () => {
  const { pair, source, target, local, remote } = setUp({ mtu: 256 });
  pair.right.postRecv(1, [
    { mr: remote, offset: 10, length: 300 },
    { mr: remote, offset: 1000, length: 0 },
    { mr: remote, offset: 2000, length: 500 },
  ]);
  pair.right.postRecv(2, []);
  pair.right.postRecv(3, [{ mr: remote, offset: 5000, length: 64 }]);
  pair.left.post({
    wrId: 1,
    opcode: 'SEND_WITH_IMM',
    immediate: 0xdeadbeef,
    flags: SendFlags.SIGNALED | SendFlags.SOLICITED,
    sge: [
      { mr: local, offset: 0, length: 100 },
      { mr: local, offset: 500, length: 1 },
      { mr: local, offset: 900, length: 600 },
    ],
  });
  pair.left.post({
    wrId: 2,
    opcode: 'RDMA_WRITE_WITH_IMM',
    immediate: 5,
    sge: [{ mr: local, offset: 0, length: 1000 }],
    remote: { addr: remote.addr + 10_000n, rkey: remote.rkey },
  });
  pair.left.post({ wrId: 3, opcode: 'SEND', inline: pattern(60, 8) });
  pair.run();
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS']);
  expect(pair.right.poll()).toMatchObject([
    { wrId: 1, byteLen: 701, immediate: 0xdeadbeef, flags: WcFlags.WITH_IMM, opcode: WcOpcode.RECV },
    { wrId: 2, byteLen: 1000, immediate: 5, flags: WcFlags.WITH_IMM, opcode: WcOpcode.RECV_RDMA_WITH_IMM },
    { wrId: 3, byteLen: 60, flags: 0 },
  ]);
  const message = new Uint8Array(701);
  message.set(source.subarray(0, 100));
  message.set(source.subarray(500, 501), 100);
  message.set(source.subarray(900, 1500), 101);
  expect(target.subarray(10, 310)).toEqual(message.subarray(0, 300));
  expect(target.subarray(2000, 2401)).toEqual(message.subarray(300));
  expect(target.subarray(10_000, 11_000)).toEqual(source.subarray(0, 1000));
  expect(target.subarray(5000, 5060)).toEqual(pattern(60, 8));
});

test('atomics return the value before, in the byte order of the machine', () => {
  const { pair, source, target, local, remote } = setUp();
  const cell = new DataView(target.buffer);
  cell.setBigUint64(8, 0xffff_ffff_ffff_fffen, true);
  const at = { addr: remote.addr + 8n, rkey: remote.rkey };
  const sge = (offset: number) => [{ mr: local, offset, length: 8 }];
  pair.left.post({ wrId: 1, opcode: 'ATOMIC_FETCH_AND_ADD', sge: sge(0), remote: at, compareAdd: 3n });
  pair.left.post({
    wrId: 2,
    opcode: 'ATOMIC_CMP_AND_SWP',
    sge: sge(8),
    remote: at,
    compareAdd: 1n,
    swap: 0x1122334455667788n,
  });
  pair.left.post({
    wrId: 3,
    opcode: 'ATOMIC_CMP_AND_SWP',
    sge: sge(16),
    remote: at,
    compareAdd: 1n,
    swap: 9n,
  });
  pair.run();
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS', 'SUCCESS', 'SUCCESS']);
  const result = new DataView(source.buffer);
  expect(result.getBigUint64(0, true)).toBe(0xffff_ffff_ffff_fffen);
  expect(result.getBigUint64(8, true)).toBe(1n);
  expect(result.getBigUint64(16, true)).toBe(0x1122334455667788n);
  expect(cell.getBigUint64(8, true)).toBe(0x1122334455667788n);
});

/** Loses the packets whose number, counted from 0 over both directions, is in the list. */
function loseNth(pair: Pair, lost: number[]): void {
  let n = 0;
  pair.fault = (packet) => (lost.includes(n++) ? [] : [{ packet, delay: 0 }]);
}

test('a lost packet in the middle draws one NAK and is retransmitted', () => {
  const { pair, source, target, local, remote } = setUp({ mtu: 1024 });
  loseNth(pair, [3]);
  pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 20_000 }], remote });
  pair.run(50_000);
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS']);
  expect(target.subarray(0, 20_000)).toEqual(source.subarray(0, 20_000));
  const naks = pair.sent.filter(
    (s) => s.from === pair.right && aethKind(aethSyndrome(s.packet, 12)) === AethKind.NAK,
  );
  expect(naks.length).toBe(1);
  expect(aethSyndrome(naks[0].packet, 12)).toBe(NakCode.PSN_SEQUENCE_ERROR);
  expect(bthPsn(naks[0].packet, 0)).toBe(0x13);
  expect(pair.left.adapter.counters()).toMatchObject({ receivedSeqErr: 1, timeouts: 0 });
});

test('readResumesAfterLostResponse: asks for the rest only', () => {
  const { pair, source, target, local, remote } = setUp({ mtu: 1024 });
  target.set(pattern(10_000, 5));
  loseNth(pair, [4]); // request, then the fourth response
  pair.left.post({ opcode: 'RDMA_READ', sge: [{ mr: local, length: 10_000 }], remote });
  pair.run(50_000);
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS']);
  expect(source.subarray(0, 10_000)).toEqual(pattern(10_000, 5));
  expect(opcodes(pair, pair.left)).toEqual([Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_RDMA_READ_REQUEST]);
  expect(bthPsn(pair.sent.filter((s) => s.from === pair.left)[1].packet, 0)).toBe(0x13);
});

test('a lost last packet is found by the timer, without probes', () => {
  const { pair, target, source, local, remote } = setUp({ mtu: 1024, left: { recovery: { probes: false } } });
  loseNth(pair, [0]);
  pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote });
  pair.run(1_000_000);
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS']);
  expect(target.subarray(0, 10)).toEqual(source.subarray(0, 10));
  expect(pair.left.adapter.counters().timeouts).toBe(1);
});

test('rnrThenReceivePosted: waits for the time in the NAK', () => {
  const { pair, local, remote } = setUp({ attr: { minRnrTimer: 20 } });
  pair.left.post({ opcode: 'SEND', sge: [{ mr: local, length: 3000 }] });
  pair.run(5_000);
  expect(pair.left.poll()).toEqual([]);
  pair.right.postRecv(1, [{ mr: remote, length: 4000 }]);
  pair.run(50_000);
  expect(pair.left.poll().map((c) => c.status)).toEqual(['SUCCESS']);
  expect(pair.right.poll()).toMatchObject([{ wrId: 1, status: 'SUCCESS', byteLen: 3000 }]);
  const sends = pair.sent.filter(
    (s) => s.from === pair.left && bthOpcode(s.packet, 0) === Opcode.RC_SEND_FIRST,
  );
  expect(sends[1].at - sends[0].at).toBe(10_240 + 20);
});

for (const retryCnt of [0, 1, 7]) {
  for (const timeout of [4, 8, 14]) {
    test(`peer gone: retry_cnt ${retryCnt}, timeout ${timeout}`, () => {
      const { pair, local, remote } = setUp({ attr: { retryCnt, timeout } });
      pair.fault = () => [];
      pair.left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote });
      pair.left.post({ wrId: 2, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote, flags: 0 });
      const expected = (retryCnt + 1) * RETRY_TIMER_FACTOR * 4.096 * 2 ** timeout;
      pair.run(expected - 0.5);
      expect(pair.left.poll()).toEqual([]);
      pair.run(1);
      expect(pair.left.poll().map((c) => [c.wrId, c.status])).toEqual([
        [1, 'RETRY_EXC_ERR'],
        [2, 'WR_FLUSH_ERR'],
      ]);
      expect(pair.left.adapter.queryQp(pair.left.qp.qpn).attr.qpState).toBe('ERR');
    });
  }
}

test('timeout 0 waits for ever', () => {
  const { pair, local, remote } = setUp({ attr: { timeout: 0 } });
  pair.fault = () => [];
  pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote });
  pair.run(10_000_000_000);
  expect(pair.left.poll()).toEqual([]);
  expect(pair.sent.length).toBe(1);
});

test('rnr_retry runs out', () => {
  const { pair, local } = setUp({ attr: { rnrRetry: 3, minRnrTimer: 12 } });
  pair.left.post({ wrId: 1, opcode: 'SEND', sge: [{ mr: local, length: 8 }] });
  pair.run(10_000_000);
  expect(pair.left.poll()).toMatchObject([{ wrId: 1, status: 'RNR_RETRY_EXC_ERR' }]);
  expect(opcodes(pair, pair.left).length).toBe(4);
});

const badWork: [string, (s: ReturnType<typeof setUp>) => WorkInit, string, number][] = [
  [
    'bad rkey',
    ({ local, remote }) => ({
      opcode: 'RDMA_WRITE',
      sge: [{ mr: local, length: 100 }],
      remote: { ...remote, rkey: remote.rkey ^ 1 },
    }),
    'REM_ACCESS_ERR',
    NakCode.REMOTE_ACCESS_ERROR,
  ],
  [
    'out of bounds',
    ({ local, remote }) => ({
      opcode: 'RDMA_WRITE',
      sge: [{ mr: local, length: 100 }],
      remote: { addr: remote.addr + (1n << 20n) - 99n, rkey: remote.rkey },
    }),
    'REM_ACCESS_ERR',
    NakCode.REMOTE_ACCESS_ERROR,
  ],
  [
    'before the region',
    ({ local, remote }) => ({
      opcode: 'RDMA_READ',
      sge: [{ mr: local, length: 100 }],
      remote: { addr: remote.addr - 1n, rkey: remote.rkey },
    }),
    'REM_ACCESS_ERR',
    NakCode.REMOTE_ACCESS_ERROR,
  ],
  [
    'misaligned atomic',
    ({ local, remote }) => ({
      opcode: 'ATOMIC_FETCH_AND_ADD',
      sge: [{ mr: local, length: 8 }],
      remote: { addr: remote.addr + 4n, rkey: remote.rkey },
    }),
    'REM_INV_REQ_ERR',
    NakCode.INVALID_REQUEST,
  ],
];

for (const [what, make, status, syndrome] of badWork) {
  test(`${what}: NAK, status and both queue pairs in ERR`, () => {
    const s = setUp();
    const { pair, target } = s;
    pair.right.postRecv(9, []);
    pair.left.post({ wrId: 1, ...make(s) });
    pair.left.post({ wrId: 2, opcode: 'SEND', sge: [{ mr: s.local, length: 1 }], flags: 0 });
    pair.run();
    expect(pair.left.poll().map((c) => [c.wrId, c.status])).toEqual([
      [1, status],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(pair.right.poll()).toMatchObject([{ wrId: 9, status: 'WR_FLUSH_ERR' }]);
    for (const side of [pair.left, pair.right]) {
      expect(side.adapter.queryQp(side.qp.qpn).attr.qpState).toBe('ERR');
    }
    const reply = pair.sent.find((p) => p.from === pair.right)?.packet as Packet;
    expect(aethSyndrome(reply, 12)).toBe(syndrome);
    expect(target.every((b) => b === 0)).toBe(true);
  });
}

test('no permission: the region refuses', () => {
  const { pair, local } = setUp();
  const readOnly = pair.right.register(new ArrayBuffer(64), Access.LOCAL_WRITE | Access.REMOTE_READ);
  pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote: readOnly });
  pair.run();
  expect(pair.left.poll()).toMatchObject([{ status: 'REM_ACCESS_ERR' }]);
  expect(pair.right.events).toEqual(
    [
      { type: 'COMM_EST', qpn: pair.right.qp.qpn },
      { type: 'QP_ACCESS_ERR', qpn: pair.right.qp.qpn },
    ].slice(1),
  );
});

test('a message longer than the receive: LOC_LEN_ERR there, REM_INV_REQ_ERR here', () => {
  const { pair, local, remote, target } = setUp();
  pair.right.postRecv(1, [{ mr: remote, length: 2000 }]);
  pair.left.post({ wrId: 1, opcode: 'SEND', sge: [{ mr: local, length: 2001 }] });
  pair.run();
  expect(pair.left.poll()).toMatchObject([{ status: 'REM_INV_REQ_ERR' }]);
  expect(pair.right.poll()).toMatchObject([{ wrId: 1, status: 'LOC_LEN_ERR' }]);
  expect(target.subarray(2000).every((b) => b === 0)).toBe(true);
});

test('a bad lkey fails here, after the requests posted before it', () => {
  const { pair, local, remote } = setUp();
  pair.left.post({ wrId: 1, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 5000 }], remote });
  pair.left.post({
    wrId: 2,
    opcode: 'RDMA_WRITE',
    sge: [{ mr: { ...local, lkey: local.lkey ^ 1 }, length: 10 }],
    remote,
  });
  pair.left.post({ wrId: 3, opcode: 'RDMA_WRITE', sge: [{ mr: local, length: 10 }], remote });
  pair.run();
  expect(pair.left.poll().map((c) => [c.wrId, c.status])).toEqual([
    [1, 'SUCCESS'],
    [2, 'LOC_PROT_ERR'],
    [3, 'WR_FLUSH_ERR'],
  ]);
});

test('many operations over a bad wire: each once, in order, byte for byte', () => {
  for (let seed = 1; seed <= 30; seed++) {
    const { pair, source, target, local, remote } = setUp(
      { mtu: 512, seed, attr: { timeout: 10, rnrRetry: 7 } },
      1 << 18,
    );
    const random = createRandom(seed * 7919).unit;
    const loss = [0.01, 0.05, 0.1][seed % 3];
    pair.fault = (packet) => {
      if (random() < loss) return [];
      const arrivals = [{ packet, delay: random() < 0.1 ? random() * 300 : 0 }];
      if (random() < 0.05) arrivals.push({ packet: packet.slice(), delay: random() * 500 });
      return arrivals;
    };
    const counter = new DataView(target.buffer);
    const wanted = new Uint8Array(1 << 18);
    let sum = 0n;
    const olds: bigint[] = [];
    const statuses: string[] = [];
    const received: number[] = [];
    for (let op = 0; op < 60; op++) {
      const length = Math.floor(random() * 3000);
      const slot = 4096 + op * 4096;
      const kind = Math.floor(random() * 4);
      if (kind === 0) {
        pair.right.postRecv(op, [{ mr: remote, offset: slot, length: 4096 }]);
        pair.left.post({ wrId: op, opcode: 'SEND', sge: [{ mr: local, offset: op, length }] });
        wanted.set(source.subarray(op, op + length), slot);
        received.push(length);
      } else if (kind === 1) {
        pair.left.post({
          wrId: op,
          opcode: 'RDMA_WRITE',
          sge: [{ mr: local, offset: op, length }],
          remote: { addr: remote.addr + BigInt(slot), rkey: remote.rkey },
        });
        wanted.set(source.subarray(op, op + length), slot);
      } else if (kind === 2) {
        pair.left.post({
          wrId: op,
          opcode: 'RDMA_READ',
          sge: [{ mr: local, offset: 10_000, length }],
          remote,
        });
      } else {
        pair.left.post({
          wrId: op,
          opcode: 'ATOMIC_FETCH_AND_ADD',
          sge: [{ mr: local, offset: 8000, length: 8 }],
          remote,
          compareAdd: BigInt(op),
        });
        sum += BigInt(op);
        olds.push(sum);
      }
      if (op % 7 === 0) pair.run(200);
      statuses.push(...pair.left.poll().map((c) => `${c.wrId} ${c.status}`));
    }
    pair.run(20_000_000);
    statuses.push(...pair.left.poll().map((c) => `${c.wrId} ${c.status}`));
    expect(statuses, `seed ${seed}`).toEqual(Array.from({ length: 60 }, (_, i) => `${i} SUCCESS`));
    expect(
      pair.right.poll().map((c) => c.byteLen),
      `seed ${seed}`,
    ).toEqual(received);
    expect(counter.getBigUint64(0, true), `seed ${seed}`).toBe(sum);
    expect(same(target.subarray(4096), wanted.subarray(4096)), `seed ${seed}`).toBe(true);
  }
});
