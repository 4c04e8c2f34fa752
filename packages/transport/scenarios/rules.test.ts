/** Rules that no scenario between two good adapters shows by itself; docs/rules.md names these tests. */
import { BthFlags, bthOpcode, bthPsn, NakCode, Opcode, psnAdd, psnDiff } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Icrc, RX_SLOT_WORDS, Rx, RxBatch } from '../src/batch.ts';
import { WINDOW_MAX, WINDOW_START } from '../src/congestion/aimd.ts';
import { Access, SendFlags, WcFlags } from '../src/constants.ts';
import { gidOf, Pair, type Side } from '../testing/pair.ts';

const SEND = { opcode: 'SEND' as const };
const WRITE = { opcode: 'RDMA_WRITE' as const };

function setUp(options: ConstructorParameters<typeof Pair>[0] = {}, size = 1 << 16) {
  const pair = new Pair(options);
  const source = Uint8Array.from({ length: size }, (_, i) => i * 7 + (i >> 8));
  const target = new Uint8Array(size);
  const all = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
  const local = pair.left.register(source.buffer, all);
  const remote = pair.right.register(target.buffer, all | Access.MW_BIND);
  return { pair, source, target, local, remote };
}

/** The answers of B, as opcode and AETH syndrome. */
const naks = (pair: Pair) =>
  pair.sent
    .filter(({ from, packet }) => from === pair.right && bthOpcode(packet, 0) === Opcode.RC_ACKNOWLEDGE)
    .map(({ packet }) => packet[12])
    .filter((syndrome) => syndrome >= 0x60);

const statuses = (side: Side) => side.poll().map(({ wrId, status }) => [wrId, status]);

/** Gives a packet to the left side, as if its peer had sent it. */
function inject(pair: Pair, packet: Uint8Array): void {
  const batch = new RxBatch(1, 8192);
  batch.slab.set(packet);
  batch.slots[Rx.LENGTH] = packet.length;
  batch.slots[Rx.VERDICT] = Icrc.OK;
  batch.slots.fill(0, RX_SLOT_WORDS);
  batch.sources.set(gidOf(2));
  batch.count = 1;
  pair.left.adapter.receive(batch);
}

/** A response packet to the left side: BTH, AETH and what follows. */
function response(pair: Pair, opcode: number, psn: number, syndrome: number, rest = 0): Uint8Array {
  const packet = new Uint8Array(16 + rest);
  const view = new DataView(packet.buffer);
  packet[0] = opcode;
  packet[2] = packet[3] = 0xff;
  view.setUint32(4, pair.left.qp.qpn);
  view.setUint32(8, psn);
  view.setUint32(12, syndrome << 24);
  return packet;
}

describe('brokenReceive', () => {
  test.each([
    ['a key of nothing', (key: number) => key ^ 1],
    ['the key of another', (key: number) => key + 256],
  ])('%s: 0x63, LOC_PROT_ERR there, REM_OP_ERR here', (_what, spoil) => {
    const { pair, local, remote, target } = setUp();
    pair.right.postRecv(1, [{ mr: { ...remote, lkey: spoil(remote.lkey) }, length: 1000 }]);
    pair.right.postRecv(2, [{ mr: remote, length: 1000 }]);
    pair.left.post({ wrId: 3, ...SEND, sge: [{ mr: local, length: 100 }] });
    pair.left.post({ wrId: 4, ...SEND, sge: [{ mr: local, length: 100 }] });
    pair.run();
    expect(naks(pair)).toEqual([NakCode.REMOTE_OPERATIONAL_ERROR]);
    expect(statuses(pair.right)).toEqual([
      [1, 'LOC_PROT_ERR'],
      [2, 'WR_FLUSH_ERR'],
    ]);
    expect(statuses(pair.left)).toEqual([
      [3, 'REM_OP_ERR'],
      [4, 'WR_FLUSH_ERR'],
    ]);
    expect(target.every((byte) => byte === 0)).toBe(true);
  });

  test('a region that went away after the receive was posted', () => {
    const { pair, local } = setUp();
    const gone = pair.right.register(new ArrayBuffer(1000));
    pair.right.postRecv(1, [{ mr: gone, length: 1000 }]);
    pair.right.adapter.deregisterMr(gone.handle);
    pair.left.post({ wrId: 3, ...SEND, sge: [{ mr: local, length: 100 }] });
    pair.run();
    expect(naks(pair)).toEqual([NakCode.REMOTE_OPERATIONAL_ERROR]);
    expect(statuses(pair.left)).toEqual([[3, 'REM_OP_ERR']]);
  });
});

describe('sendWithInvalidate', () => {
  /** A window of type 2 of B's, bound to bytes 1000 … 1999 of its region. */
  function setUpWindow(options = {}) {
    const set = setUp(options);
    const { pair, remote } = set;
    const { handle, rkey } = pair.right.adapter.allocMw(pair.right.pd, 2);
    const window = { addr: remote.addr + 1000n, rkey: ((rkey & ~0xff) | ((rkey + 1) & 0xff)) >>> 0 };
    const bind = { window: handle, length: 1000, lkey: remote.lkey, access: Access.REMOTE_WRITE };
    pair.right.post({ wrId: 1, opcode: 'BIND_MW', remote: window, bind });
    pair.run();
    expect(statuses(pair.right)).toEqual([[1, 'SUCCESS']]);
    return { ...set, window };
  }

  test('invalidates the window and reports it in the receive completion', () => {
    const { pair, local, remote, target, source, window } = setUpWindow();
    const sge = [{ mr: local, length: 100 }];
    pair.left.post({ wrId: 2, ...WRITE, sge, remote: window });
    pair.run();
    expect(statuses(pair.left)).toEqual([[2, 'SUCCESS']]);
    expect(target.subarray(1000, 1100)).toEqual(source.subarray(0, 100));

    pair.right.postRecv(7, [{ mr: remote, length: 5000 }]);
    const long = [{ mr: local, length: 3000 }];
    pair.left.post({ wrId: 3, opcode: 'SEND_WITH_INV', sge: long, immediate: window.rkey });
    pair.left.post({ wrId: 4, ...WRITE, sge, remote: window });
    pair.run();
    expect(pair.right.poll()).toMatchObject([
      { wrId: 7, status: 'SUCCESS', byteLen: 3000, flags: WcFlags.WITH_INV, immediate: window.rkey },
    ]);
    expect(statuses(pair.left)).toEqual([
      [3, 'SUCCESS'],
      [4, 'REM_ACCESS_ERR'],
    ]);
    expect(naks(pair)).toEqual([NakCode.REMOTE_ACCESS_ERROR]);
  });

  test('a key of no window: 0x62, and the receive fails', () => {
    const { pair, local, remote, window } = setUpWindow();
    pair.right.postRecv(7, [{ mr: remote, length: 5000 }]);
    const sge = [{ mr: local, length: 100 }];
    pair.left.post({ wrId: 3, opcode: 'SEND_WITH_INV', sge, immediate: window.rkey ^ 1 });
    pair.run();
    expect(naks(pair)).toEqual([NakCode.REMOTE_ACCESS_ERROR]);
    expect(statuses(pair.left)).toEqual([[3, 'REM_ACCESS_ERR']]);
    expect(statuses(pair.right)).toEqual([[7, 'LOC_ACCESS_ERR']]);
  });

  test('a wrong key in a message that is too long: the length is looked at first', () => {
    const { pair, local, remote, window } = setUpWindow();
    pair.right.postRecv(7, [{ mr: remote, length: 50 }]);
    const sge = [{ mr: local, length: 100 }];
    pair.left.post({ wrId: 3, opcode: 'SEND_WITH_INV', sge, immediate: window.rkey ^ 1 });
    pair.run();
    expect(naks(pair)).toEqual([NakCode.INVALID_REQUEST]);
    expect(statuses(pair.right)).toEqual([[7, 'LOC_LEN_ERR']]);
  });

  test('repeated after a lost ACK it takes nothing away a second time', () => {
    const { pair, local, remote, window } = setUpWindow({ attr: { timeout: 8 } });
    pair.right.postRecv(7, [{ mr: remote, length: 5000 }]);
    let lost = false;
    pair.fault = (packet) => {
      if (bthOpcode(packet, 0) !== Opcode.RC_ACKNOWLEDGE || lost) return [{ packet, delay: 0 }];
      lost = true;
      return [];
    };
    const sge = [{ mr: local, length: 100 }];
    pair.left.post({ wrId: 3, opcode: 'SEND_WITH_INV', sge, immediate: window.rkey });
    pair.run();
    expect(lost).toBe(true);
    expect(statuses(pair.left)).toEqual([[3, 'SUCCESS']]);
    expect(statuses(pair.right)).toEqual([[7, 'SUCCESS']]);
    expect(naks(pair)).toEqual([]);
  });
});

test('solicitedEvent: with the last packet of a SEND or WRITE with immediate, and only there', () => {
  let events = 0;
  const { pair, local, remote } = setUp({ mtu: 256, right: { onCompletionEvent: () => events++ } });
  const flags = SendFlags.SIGNALED | SendFlags.SOLICITED;
  const sge = [{ mr: local, length: 700 }];
  for (let i = 0; i < 4; i++) pair.right.postRecv(i, [{ mr: remote, length: 1000 }]);
  const eventsOf = (work: Parameters<Side['post']>[0]) => {
    events = 0;
    pair.right.cq.arm(2);
    const before = pair.sent.length;
    pair.left.post(work);
    pair.run();
    const requests = pair.sent.slice(before).filter(({ from }) => from === pair.left);
    return { events, bits: requests.map(({ packet }) => (packet[1] & BthFlags.SOLICITED) !== 0) };
  };
  const none = [false, false, false];
  const last = [false, false, true];
  expect(eventsOf({ ...SEND, sge })).toEqual({ events: 0, bits: none });
  expect(eventsOf({ ...SEND, sge, flags })).toEqual({ events: 1, bits: last });
  expect(eventsOf({ ...WRITE, sge, remote, flags })).toEqual({ events: 0, bits: none });
  const withImmediate = { opcode: 'RDMA_WRITE_WITH_IMM' as const, sge, remote };
  expect(eventsOf(withImmediate)).toEqual({ events: 0, bits: none });
  expect(eventsOf({ ...withImmediate, flags })).toEqual({ events: 1, bits: last });
});

test('windowOfPackets: so many are out at the start, and never more than the most', () => {
  const latency = 500;
  const { pair, local, remote } = setUp({ mtu: 256, latency }, 1 << 20);
  pair.left.post({ wrId: 1, ...WRITE, sge: [{ mr: local, length: 1 << 20 }], remote });
  pair.run(10_000_000);
  expect(statuses(pair.left)).toEqual([[1, 'SUCCESS']]);
  const first = bthPsn(pair.sent[0].packet, 0);
  let highest = psnAdd(first, -1);
  let most = 0;
  const acks = pair.sent.filter(({ from }) => from === pair.right);
  for (const { from, packet, at } of pair.sent) {
    if (from !== pair.left) continue;
    const psn = bthPsn(packet, 0);
    if (psnDiff(psn, highest) > 0) highest = psn;
    const heard = acks.filter((ack) => ack.at + latency <= at).at(-1);
    const acknowledged = heard ? bthPsn(heard.packet, 0) : psnAdd(first, -1);
    const out = psnDiff(highest, acknowledged);
    if (!heard) expect(out).toBeLessThanOrEqual(WINDOW_START);
    most = Math.max(most, out);
  }
  expect(most).toBe(WINDOW_MAX);
});

describe('ghostResponse', () => {
  test.each<[string, number, number, number, number]>([
    ['an ACK of what was acknowledged before', Opcode.RC_ACKNOWLEDGE, -1, 0x1f, 0],
    ['an ACK of what was never sent', Opcode.RC_ACKNOWLEDGE, 1000, 0x1f, 0],
    ['an ACK from half the PSN space away', Opcode.RC_ACKNOWLEDGE, 1 << 23, 0x1f, 0],
    ['a NAK of what was acknowledged before', Opcode.RC_ACKNOWLEDGE, -5, 0x62, 0],
    ['a NAK of what was never sent', Opcode.RC_ACKNOWLEDGE, 1, 0x61, 0],
    ['an RNR NAK of what was never sent', Opcode.RC_ACKNOWLEDGE, 7, 0x2c, 0],
    ['a READ response of the past', Opcode.RC_RDMA_READ_RESPONSE_ONLY, -2, 0x1f, 64],
    ['a READ response of the future', Opcode.RC_RDMA_READ_RESPONSE_ONLY, 3, 0x1f, 64],
    ['an atomic answer of the past', Opcode.RC_ATOMIC_ACKNOWLEDGE, -3, 0x1f, 8],
  ])('%s: ignored', (_what, opcode, ahead, syndrome, rest) => {
    const { pair, local, remote, source, target } = setUp();
    const before = source.slice();
    const post = (wrId: number) =>
      pair.left.post({ wrId, ...WRITE, sge: [{ mr: local, length: 3000 }], remote });
    post(1);
    pair.run();
    expect(statuses(pair.left)).toEqual([[1, 'SUCCESS']]);
    const next = pair.left.adapter.queryQp(pair.left.qp.qpn).attr.sqPsn!;
    const stale = () => pair.left.adapter.counters().staleResponses;
    const count = stale();
    inject(pair, response(pair, opcode, psnAdd(next, ahead), syndrome, rest));
    expect(stale()).toBe(count + 1);
    expect(statuses(pair.left)).toEqual([]);
    post(2);
    pair.run();
    expect(statuses(pair.left)).toEqual([[2, 'SUCCESS']]);
    expect(source).toEqual(before);
    expect(target.subarray(0, 3000)).toEqual(source.subarray(0, 3000));
  });
});
