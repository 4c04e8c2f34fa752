/** Regions whose bytes are fetched and stored by calls, and calls that fail. */
import { describe, expect, test } from 'vitest';
import { Pair, type Side } from '../testing/pair.ts';
import { setUpRaw } from '../testing/raw-side.ts';
import { RegionTable, TxBatch } from './batch.ts';
import { Access, setReach, WrOpcode } from './index.ts';

type Opcode = 'RDMA_WRITE' | 'RDMA_READ' | 'SEND';
const KIB = 1024;
const statuses = (side: Side) => side.poll().map(({ wrId, status }) => [wrId, status]);

/** Memory of `bytes` bytes that only calls reach; from `end` on they fail. */
function faraway(bytes: number) {
  const there = new Uint8Array(bytes);
  const buffer = new SharedArrayBuffer(bytes);
  const view = new Uint8Array(buffer);
  const memory = { there, buffer, end: bytes, pulled: 0, forgotten: 0 };
  const reaches = (offset: number, length: number) => offset + length <= memory.end;
  setReach(buffer, {
    pull(offset, length) {
      memory.pulled += length;
      if (!reaches(offset, length)) return false;
      view.set(there.subarray(offset, offset + length), offset);
      return true;
    },
    push(from, source, offset, length) {
      if (!reaches(offset, length)) return false;
      there.set(from.subarray(source, source + length), offset);
      return true;
    },
    forget() {
      memory.forgotten++;
      view.fill(0);
    },
  });
  return memory;
}

function setUp(bytes = 64 * KIB, mtu = 1024) {
  const pair = new Pair({ mtu });
  const { left, right } = pair;
  const [here, there] = [faraway(bytes), faraway(bytes)];
  const [local, remote] = [left.register(here.buffer), right.register(there.buffer)];
  const post = (wrId: number, opcode: Opcode, length: number) =>
    left.post({ wrId, opcode, sge: [{ mr: local, length }], remote });
  return { pair, left, right, here, there, local, remote, post };
}

const pattern = (bytes: number, seed: number) => Uint8Array.from({ length: bytes }, (_, i) => i * 7 + seed);

describe('memory behind calls', () => {
  test('WRITE, READ, SEND and atomics move its bytes, not those of the view', () => {
    const { pair, left, right, here, there, local, remote, post } = setUp();
    here.there.set(pattern(20_000, 1));
    post(1, 'RDMA_WRITE', 20_000);
    pair.run(1_000_000);
    expect(there.there.subarray(0, 20_000)).toEqual(pattern(20_000, 1));
    there.there.set(pattern(20_000, 2));
    post(2, 'RDMA_READ', 20_000);
    pair.run(1_000_000);
    expect(here.there.subarray(0, 20_000)).toEqual(pattern(20_000, 2));
    for (const [wrId, length] of [
      [3, 100],
      [4, 9000],
    ]) {
      here.there.set(pattern(length, wrId));
      right.postRecv(10 + wrId, [{ mr: remote, length: 64 * KIB }]);
      post(wrId, 'SEND', length);
      pair.run(1_000_000);
      expect(there.there.subarray(0, length)).toEqual(pattern(length, wrId));
    }
    const word = ({ there: bytes }: { there: Uint8Array }) => new BigUint64Array(bytes.buffer, 0, 1);
    word(there)[0] = 5n;
    left.post({
      wrId: 5,
      opcode: 'ATOMIC_FETCH_AND_ADD',
      sge: [{ mr: local, length: 8 }],
      remote,
      compareAdd: 3n,
    });
    pair.run(1_000_000);
    expect([word(there)[0], word(here)[0]]).toEqual([8n, 5n]);
    expect(statuses(left)).toEqual([1, 2, 3, 4, 5].map((wrId) => [wrId, 'SUCCESS']));
  });

  test.each<[Opcode, number]>([
    ['RDMA_WRITE', 20_000],
    ['RDMA_WRITE', 10_500],
    ['RDMA_READ', 20_000],
    ['RDMA_READ', 10_500],
  ])(
    '%s of %i bytes to or from a peer’s memory that goes at 10,000: the peer refuses it',
    (opcode, length) => {
      const { pair, left, right, there, post } = setUp();
      there.end = 10_000;
      post(1, opcode, length);
      pair.run(1_000_000);
      expect(statuses(left)).toEqual([[1, 'REM_ACCESS_ERR']]);
      expect(right.events.map(({ type }) => type)).toContain('QP_ACCESS_ERR');
    },
  );

  test.each<[Opcode, number]>([
    ['RDMA_WRITE', 20_000],
    ['RDMA_WRITE', 200],
    ['RDMA_READ', 20_000],
    ['RDMA_READ', 200],
    ['SEND', 20_000],
    ['SEND', 200],
  ])('%s of %i bytes with memory of its own that is gone: the request fails', (opcode, length) => {
    const { pair, left, right, here, remote, post } = setUp();
    here.end = length / 2;
    right.postRecv(9, [{ mr: remote, length: 64 * KIB }]);
    post(1, opcode, length);
    pair.run(1_000_000);
    expect(statuses(left)).toEqual([[1, 'LOC_PROT_ERR']]);
  });

  test.each([200, 20_000])('a receive of %i bytes whose memory is gone fails on both sides', (length) => {
    const { pair, left, right, there, remote, post } = setUp();
    there.end = length / 2;
    right.postRecv(9, [{ mr: remote, length: 64 * KIB }]);
    post(1, 'SEND', length);
    pair.run(1_000_000);
    expect(statuses(right)).toEqual([[9, 'LOC_PROT_ERR']]);
    expect(statuses(left)).toEqual([[1, 'REM_OP_ERR']]);
  });

  test('fetched bytes do not stay for ever, and a retransmission fetches them again', () => {
    const { pair, left, here, there, post } = setUp(1 << 20, 4096);
    here.there.set(pattern(1 << 20, 3));
    let n = 0;
    pair.fault = (packet) => (++n % 50 === 7 ? [] : [{ packet, delay: 0 }]);
    for (let wrId = 0; wrId < 20; wrId++) post(wrId, 'RDMA_WRITE', 1 << 20);
    pair.run(100_000_000);
    expect(statuses(left)).toEqual(Array.from({ length: 20 }, (_, wrId) => [wrId, 'SUCCESS']));
    expect(here.pulled).toBeGreaterThan(20 << 20);
    expect(here.forgotten).toBeGreaterThan(0);
    expect(Buffer.compare(there.there, here.there)).toBe(0);
  });

  test('raw frames: fetched bytes are forgotten', () => {
    const side = setUpRaw();
    side.activate();
    const buffer = new SharedArrayBuffer(128 * KIB);
    let forgotten = 0;
    setReach(buffer, { pull: () => true, push: () => true, forget: () => forgotten++ });
    const { adapter, pd, mr } = side;
    const region = { pd, backing: 5, buffer, offset: 0, length: buffer.byteLength, iova: mr.addr };
    const { lkey } = adapter.registerMr({ ...region, access: Access.LOCAL_WRITE });
    for (let i = 0; i < 300; i++) {
      side.send(i, [100_000], WrOpcode.SEND, lkey);
      expect(side.poll()).toEqual([[i, 'SUCCESS', 100_000]]);
      side.port.sent.length = 0;
    }
    expect(forgotten).toBe(1);
  });

  test('bytes that are fetched before their batch is open, as for atomics: they are forgotten behind it', () => {
    const regions = new RegionTable();
    const batch = new TxBatch(regions, 1);
    let forgotten = 0;
    const reach = { pull: () => true, push: () => true, forget: () => forgotten++ };
    for (let i = 0; i < 40; i++) {
      regions.fetched.pull(reach, 0, 1024 * KIB);
      regions.batches.open(batch);
      regions.batches.close(batch);
    }
    expect(forgotten).toBe(2);
  });
});
