/** Request packets byte by byte: BTH, extension headers, payload and pad of each operation (IBTA vol 1 §9.2 to §9.4). */
import {
  bthAckReq,
  bthOpcode,
  bthSolicited,
  Opcode,
  sourcePortForUd,
  sourcePortFromFlowLabel,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, inShort } from '../../testing/by-hand.ts';
import { addressOf, QKEY, type WorkInit } from '../../testing/pair.ts';
import { SendFlags, TX_SLOT_WORDS, Tx, TxBatch } from '../index.ts';

const MTU = 256;
/** Destination QPN 77, PSN 0x500, the default P_Key. */
const bth = (opcode: number, flags: number, ackReq = true) =>
  `${hex(opcode)}${hex(0x40 | flags)}ffff0000004d${ackReq ? '80' : '00'}000500`;
const hex = (byte: number) => byte.toString(16).padStart(2, '0');
const remote = { addr: 0x0102_0304_0506_0708n, rkey: 0xa1b2_c3d4 };
const RKEY = 'a1b2c3d4';

function requester() {
  const hand = new ByHand({ sqPsn: 0x500, pathMtu: MTU });
  const { side } = hand;
  const mr = side.register(Uint8Array.from({ length: 4096 }, (_, i) => i).buffer);
  const packets = (work: Omit<WorkInit, 'sge'> & { length?: number }) => {
    const { length = 0, ...rest } = work;
    side.post({ ...rest, ...(rest.inline ? {} : { sge: [{ mr, offset: 1, length }] }) });
    return hand.out();
  };
  const first = (work: Parameters<typeof packets>[0]) => Buffer.from(packets(work)[0]).toString('hex');
  return { hand, side, mr, packets, first };
}

describe('one packet', () => {
  test.each<[string, Parameters<ReturnType<typeof requester>['packets']>[0], string]>([
    ['SEND', { opcode: 'SEND', length: 4 }, `${bth(Opcode.RC_SEND_ONLY, 0)}01020304`],
    ['SEND of nothing', { opcode: 'SEND' }, bth(Opcode.RC_SEND_ONLY, 0)],
    ['SEND with a pad of 3', { opcode: 'SEND', length: 1 }, `${bth(Opcode.RC_SEND_ONLY, 0x30)}01000000`],
    ['SEND with a pad of 1', { opcode: 'SEND', length: 3 }, `${bth(Opcode.RC_SEND_ONLY, 0x10)}01020300`],
    [
      'SEND with immediate',
      { opcode: 'SEND_WITH_IMM', length: 4, immediate: 0xdead_beef },
      `${bth(Opcode.RC_SEND_ONLY_WITH_IMMEDIATE, 0)}deadbeef01020304`,
    ],
    [
      'SEND with invalidate',
      { opcode: 'SEND_WITH_INV', length: 4, immediate: 0xdead_beef },
      `${bth(Opcode.RC_SEND_ONLY_WITH_INVALIDATE, 0)}deadbeef01020304`,
    ],
    [
      'SEND, solicited',
      { opcode: 'SEND', length: 4, flags: SendFlags.SOLICITED },
      `${bth(Opcode.RC_SEND_ONLY, 0x80)}01020304`,
    ],
    [
      'SEND, inline',
      { opcode: 'SEND', inline: Uint8Array.of(9, 8, 7, 6, 5) },
      `${bth(Opcode.RC_SEND_ONLY, 0x30)}0908070605000000`,
    ],
    [
      'WRITE',
      { opcode: 'RDMA_WRITE', length: 4, remote },
      `${bth(Opcode.RC_RDMA_WRITE_ONLY, 0)}0102030405060708${RKEY}0000000401020304`,
    ],
    [
      'WRITE, which consumes no receive, so nothing is solicited',
      { opcode: 'RDMA_WRITE', length: 0, remote, flags: SendFlags.SOLICITED },
      `${bth(Opcode.RC_RDMA_WRITE_ONLY, 0)}0102030405060708${RKEY}00000000`,
    ],
    [
      'WRITE with immediate, solicited',
      { opcode: 'RDMA_WRITE_WITH_IMM', length: 4, remote, immediate: 7, flags: SendFlags.SOLICITED },
      `${bth(Opcode.RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 0x80)}0102030405060708${RKEY}000000040000000701020304`,
    ],
    [
      'READ',
      { opcode: 'RDMA_READ', length: 100, remote },
      `${bth(Opcode.RC_RDMA_READ_REQUEST, 0)}0102030405060708${RKEY}00000064`,
    ],
    [
      'FETCH_ADD: the addend, and nothing to compare',
      { opcode: 'ATOMIC_FETCH_AND_ADD', length: 8, remote, compareAdd: 0x1112_1314_1516_1718n, swap: 99n },
      `${bth(Opcode.RC_FETCH_ADD, 0)}0102030405060708${RKEY}11121314151617180000000000000000`,
    ],
    [
      'CMP_SWAP: the new value, then the compared one',
      {
        opcode: 'ATOMIC_CMP_AND_SWP',
        length: 8,
        remote,
        compareAdd: 0x1112_1314_1516_1718n,
        swap: 0x2122_2324_2526_2728n,
      },
      `${bth(Opcode.RC_COMPARE_SWAP, 0)}0102030405060708${RKEY}21222324252627281112131415161718`,
    ],
  ])('%s', (_what, work, expected) => {
    expect(requester().first(work)).toBe(expected);
  });
});

describe('several packets', () => {
  const names = (packets: Uint8Array[]) => packets.map((packet) => inShort(packet)[0]);

  test('RETH with the first, immediate data and the event with the last, an ACK for the last', () => {
    const { packets } = requester();
    const all = packets({
      opcode: 'RDMA_WRITE_WITH_IMM',
      length: 2 * MTU + 1,
      remote,
      immediate: 5,
      flags: SendFlags.SOLICITED,
    });
    expect(names(all)).toEqual(['RDMA_WRITE_FIRST', 'RDMA_WRITE_MIDDLE', 'RDMA_WRITE_LAST_WITH_IMMEDIATE']);
    expect(all.map((packet) => packet.length)).toEqual([12 + 16 + MTU, 12 + MTU, 12 + 4 + 4]);
    expect(all.map((packet) => bthSolicited(packet, 0))).toEqual([0, 0, 1]);
    expect(all.map((packet) => bthAckReq(packet, 0))).toEqual([0, 0, 1]);
    expect(Buffer.from(all[0].subarray(12, 28)).toString('hex')).toBe(`0102030405060708${RKEY}00000201`);
    expect([...all[2].subarray(12)]).toEqual([0, 0, 0, 5, 1, 0, 0, 0]);
  });

  test('of inline data: each packet has its part', () => {
    const hand = new ByHand({ sqPsn: 0x500, pathMtu: MTU });
    hand.side.createQp({ maxInlineData: 1000 });
    hand.connect({ sqPsn: 0x500, pathMtu: MTU });
    const inline = Uint8Array.from({ length: 3 * MTU + 7 }, (_, i) => i * 3 + (i >> 8));
    hand.side.post({ opcode: 'SEND', inline });
    const payload = hand.out().flatMap((packet) => [...packet.subarray(12)]);
    expect(payload).toEqual([...inline, 0]);
  });

  test.each([
    ['before a multiple of 2^32', 0x0000_0001_ffff_ff00n - 1n],
    ['from one on', 0x0000_0001_0000_0000n],
    ['over the end of 2^63', 0x7fff_ffff_ffff_ff80n],
  ])('READs that are split %s go on at the next address', (_what, addr) => {
    // The budget holds the responses of four packets, two for each request.
    const hand = new ByHand({ sqPsn: 0x500, pathMtu: MTU }, { receiveBuffer: 4600 });
    const mr = hand.side.register(new ArrayBuffer(4096));
    hand.side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: 4 * MTU }], remote: { addr, rkey: 1 } });
    const asked: bigint[] = [];
    for (let psn = 0x500; psn < 0x504; psn++) {
      for (const packet of hand.out()) asked.push(Buffer.from(packet).readBigUInt64BE(12));
      const opcode = psn % 2 === 0 ? Opcode.RC_RDMA_READ_RESPONSE_FIRST : Opcode.RC_RDMA_READ_RESPONSE_LAST;
      hand.put({ opcode, psn, aeth: { syndrome: 0x1f }, payload: new Uint8Array(MTU) });
    }
    expect(asked).toEqual([addr, addr + BigInt(2 * MTU)]);
  });
});

describe('a datagram', () => {
  /** A UD queue pair, and an address handle with these parts of a route. */
  function datagrams(route = {}) {
    const { side } = new ByHand({}, { peers: { add: () => 40, remove: () => {} } });
    const { adapter } = side;
    side.createQp({}, { type: 'UD' });
    const { qpn } = side.qp;
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
    adapter.modifyQp(qpn, { qpState: 'RTR' });
    adapter.modifyQp(qpn, { qpState: 'RTS', sqPsn: 0x500 });
    const address = addressOf(1);
    const ah = adapter.createAh(side.pd, { ...address, grh: { ...address.grh, ...route } });
    const mr = side.register(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8).buffer);
    const tx = new TxBatch(adapter.regions);
    const send = (qkey: number) => {
      const datagram = { ah, qpn: 0x123456, qkey };
      side.post({ opcode: 'SEND', sge: [{ mr, length: 5 }], datagram });
      tx.clear();
      adapter.transmit(tx);
      return Buffer.from(tx.headers.subarray(0, tx.slots[Tx.HEADER_LENGTH])).toString('hex');
    };
    return { qpn, tx, send };
  }

  test('DETH: the Q_Key and the sender; no ACK is asked for', () => {
    const { qpn, send } = datagrams();
    const sender = qpn.toString(16).padStart(8, '0');
    expect(send(0x7654_3210)).toBe(`${hex(Opcode.UD_SEND_ONLY)}70ffff0012345600000500` + `76543210${sender}`);
    expect(send(0x8000_0000)).toContain(`${QKEY.toString(16)}${sender}`);
    expect(send(0x7fff_ffff)).toContain(`7fffffff${sender}`);
  });

  test.each([0, 0x12345])('goes the way of its address handle, with flow label %i', (flowLabel) => {
    const { qpn, tx, send } = datagrams({ trafficClass: 0x68, flowLabel });
    send(QKEY);
    const port = flowLabel === 0 ? sourcePortForUd(qpn) : sourcePortFromFlowLabel(flowLabel);
    expect(tx.slots[Tx.TRAFFIC_CLASS]).toBe(0x68);
    expect(tx.slots[Tx.SOURCE_PORT]).toBe(port);
    expect([tx.slots[Tx.PAYLOAD_LENGTH], tx.slots[Tx.PAD]]).toEqual([5, 3]);
  });

  test('each of a batch goes its own way', () => {
    const { side } = new ByHand({}, { peers: { add: (dgid) => dgid[15], remove: () => {} } });
    const { adapter } = side;
    side.createQp({}, { type: 'UD' });
    const { qpn } = side.qp;
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qkey: QKEY });
    adapter.modifyQp(qpn, { qpState: 'RTR' });
    adapter.modifyQp(qpn, { qpState: 'RTS', sqPsn: 0 });
    for (const n of [11, 12, 13]) {
      const ah = adapter.createAh(side.pd, addressOf(n));
      side.post({ opcode: 'SEND', sge: [], datagram: { ah, qpn: n, qkey: QKEY } });
    }
    const tx = new TxBatch(adapter.regions);
    adapter.transmit(tx);
    const peers = [0, 1, 2].map((i) => tx.slots[i * TX_SLOT_WORDS + Tx.PEER]);
    expect(peers).toEqual([11, 12, 13]);
    expect([0, 1, 2].map((i) => bthOpcode(tx.headers, tx.slots[i * TX_SLOT_WORDS]))).toEqual([
      Opcode.UD_SEND_ONLY,
      Opcode.UD_SEND_ONLY,
      Opcode.UD_SEND_ONLY,
    ]);
  });
});
