/**
 * READ responses that a device has asked for fit the buffer of its receive socket (`receiveBuffer`, bytes as the kernel counts
 * them): else the socket drops them, and each loss is a round trip or more.
 */
import { bthOpcode, Opcode, rethLength } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Crowd } from '../../testing/crowd.ts';
import { Pair } from '../../testing/pair.ts';
import { type QpCreated, TX_SLOT_WORDS, Tx, type TxBatch } from '../index.ts';

const BUFFER = 212_992;
const RETH = 12;

const isRead = (packet: Uint8Array, at = 0) => bthOpcode(packet, at) === Opcode.RC_RDMA_READ_REQUEST;

describe('READs whose responses are late', () => {
  /** Bytes asked for in 5 ms, while no response comes and the packets of a WRITE before them are acknowledged. */
  function askedFor(writes: boolean) {
    const pair = new Pair({ left: { receiveBuffer: BUFFER, recovery: { probes: false } } });
    const { left, right } = pair;
    const local = left.register(new ArrayBuffer(1 << 20));
    const remote = right.register(new ArrayBuffer(1 << 20));
    const sge = [{ mr: local, length: 400 * 1024 }];
    const write = () => left.post({ opcode: 'RDMA_WRITE', flags: 0, sge, remote });
    // Opens the window, so that the WRITE and all READs may be out together.
    for (let i = 0; i < 20; i++) {
      write();
      pair.run(100_000);
    }
    const before = pair.sent.length;
    const isResponse = (opcode: number) =>
      opcode >= Opcode.RC_RDMA_READ_RESPONSE_FIRST && opcode <= Opcode.RC_RDMA_READ_RESPONSE_ONLY;
    pair.fault = (packet) => [{ packet, delay: isResponse(bthOpcode(packet, 0)) ? 6000 : 0 }];
    if (writes) write();
    for (let i = 0; i < 8; i++) {
      left.post({ wrId: 100 + i, opcode: 'RDMA_READ', sge: [{ mr: local, length: 1 << 16 }], remote });
    }
    pair.run(5000);
    expect(left.adapter.counters()).toMatchObject({ retransmittedPackets: 0, impliedNakSeqErr: 0 });
    const asked = pair.sent
      .slice(before)
      .filter(({ from, packet }) => from === left && isRead(packet))
      .reduce((sum, { packet }) => sum + rethLength(packet, RETH), 0);
    pair.fault = undefined;
    pair.run(10_000_000);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual(
      Array.from({ length: 8 }, (_, i) => [100 + i, 'SUCCESS']),
    );
    return asked;
  }

  test('alone: no more than the buffer holds', () => {
    const asked = askedFor(false);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThanOrEqual(BUFFER / 2);
  });

  // M3. Once: 131,072 bytes, which the kernel counts as 328 KB.
  test('behind a WRITE, whose packets are acknowledged meanwhile: no more either', () => {
    const asked = askedFor(true);
    expect(asked).toBeGreaterThan(0);
    expect(asked).toBeLessThanOrEqual(BUFFER / 2);
  });
});

describe('many queue pairs that READ at the same time', () => {
  /** The most bytes of responses that were asked for at once and have not come, and whether all READs were done. */
  function readAll(count: number) {
    const length = 1 << 16;
    const crowd = new Crowd({ count, timeout: 14, mtu: 1024 });
    let asked = 0;
    let most = 0;
    crowd.onBatch = ({ headers, slots, count: packets }: TxBatch) => {
      for (let i = 0; i < packets; i++) {
        const at = slots[i * TX_SLOT_WORDS + Tx.HEADER_OFFSET];
        if (isRead(headers, at)) asked += rethLength(headers, at + RETH);
      }
      most = Math.max(most, asked);
    };
    for (let i = 0; i < count; i++) {
      const { local, remote } = crowd;
      crowd.post(i, { wrId: i, opcode: 'RDMA_READ', sge: [{ mr: local, length }], remote });
    }
    let done = 0;
    for (; done < count && crowd.steps < 2000; ) {
      crowd.step();
      // The responses that were asked for in one step have come two steps later, and nothing is lost here.
      if (crowd.steps % 2 === 0) asked = 0;
      done += crowd.left.poll().filter(({ status }) => status === 'SUCCESS').length;
    }
    expect(done).toBe(count);
    expect(crowd.left.adapter.counters().timeouts).toBe(0);
    return most;
  }

  // Suspicion (incast). Once: each may ask for one chunk whatever the others have out.
  test('ask together for no more than the buffer holds', () => {
    expect(readAll(32)).toBeLessThanOrEqual(BUFFER);
  });

  test('are served although one that is never answered holds all of the buffer', () => {
    const pair = new Pair({ left: { receiveBuffer: BUFFER }, attr: { timeout: 0 } });
    const { left, right } = pair;
    const local = left.register(new ArrayBuffer(1 << 20));
    const remote = right.register(new ArrayBuffer(1 << 20));
    pair.fault = (packet) => (isRead(packet) ? [] : [{ packet, delay: 0 }]);
    left.post({ wrId: 1, opcode: 'RDMA_READ', sge: [{ mr: local, length: 1 << 20 }], remote });
    pair.run(1000);
    pair.fault = undefined;
    for (const side of [left, right]) side.createQp();
    pair.connect();
    left.post({ wrId: 2, opcode: 'RDMA_READ', sge: [{ mr: local, length: 1 << 18 }], remote });
    pair.run(1_000_000);
    expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[2, 'SUCCESS']]);
    left.adapter.checkInvariants();
  });

  test('two together keep within the buffer, and both complete', () => {
    expect(readAll(2)).toBeLessThanOrEqual(BUFFER);
  });
});

test('SQD: a READ that is not started after all leaves its share of the buffer to others', () => {
  const pair = new Pair({ left: { receiveBuffer: 5000 } });
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(1 << 16));
  const remote = right.register(new ArrayBuffer(1 << 16));
  const first = left.qp;
  left.createQp();
  right.createQp();
  pair.connect();
  const second = left.qp;
  const read = (qp: QpCreated, wrId: number, length: number) => {
    left.use(qp);
    left.post({ wrId, opcode: 'RDMA_READ', sge: [{ mr: local, length }], remote });
  };
  // The buffer holds one response: the second READ waits for the first.
  read(first, 1, 1024);
  read(second, 2, 1024);
  pair.run(5);
  left.adapter.modifyQp(second.qpn, { qpState: 'SQD' });
  pair.run(1000);
  expect(left.poll().map(({ wrId }) => wrId)).toEqual([1]);
  // Once: the queue pair in SQD held the buffer, and each response of others took 10 ms.
  read(first, 3, 10 * 1024);
  pair.run(1000);
  expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[3, 'SUCCESS']]);
  left.adapter.modifyQp(second.qpn, { qpState: 'RTS' });
  pair.run(1000);
  expect(left.poll().map(({ wrId, status }) => [wrId, status])).toEqual([[2, 'SUCCESS']]);
});
