/** Regions without memory (ibv_alloc_null_mr(3)): zeros to send, and what arrives is discarded. */
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Access, type MrCreated } from '../src/index.ts';
import { addressOf, Pair, QKEY, type Side } from '../testing/pair.ts';
import { frameOf, setUpRaw } from '../testing/raw-side.ts';

/** A null region as `post` takes regions; its addresses are anything. */
function nullOf(side: Side, addr = 0n, pd = side.pd): MrCreated {
  const { handle, lkey } = side.adapter.allocNullMr(pd);
  return { handle, lkey, rkey: lkey, addr, iova: addr };
}

const filled = (length: number, byte: number) => new Uint8Array(length).fill(byte);

describe.each([0n, 0x1234n, 0xffff_ffff_ffff_0000n])('at address %d', (addr) => {
  test('a message gathers zeros between its other elements, over many packets', () => {
    const pair = new Pair({ mtu: 256 });
    const { left, right } = pair;
    const data = filled(1000, 7);
    const from = left.register(data.buffer);
    const target = filled(10_000, 9);
    const to = right.register(target.buffer);
    const nothing = nullOf(left, addr);
    left.post({
      opcode: 'RDMA_WRITE',
      sge: [
        { mr: from, length: 300 },
        { mr: nothing, length: 6000 },
        { mr: from, length: 700 },
        { mr: nothing, length: 1 },
      ],
      remote: to,
    });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'SUCCESS', byteLen: 7001 }]);
    const expected = filled(10_000, 9);
    expected.set(filled(300, 7));
    expected.set(filled(6000, 0), 300);
    expected.set(filled(700, 7), 6300);
    expected[7000] = 0;
    expect(target).toEqual(expected);
  });

  test('a receive and a READ keep what is for their other elements alone', () => {
    const pair = new Pair({ mtu: 256 });
    const { left, right } = pair;
    const source = Uint8Array.from({ length: 2000 }, (_, i) => i);
    const memory = new Uint8Array(2000);
    const own = right.register(memory.buffer);
    right.postRecv(1, [
      { mr: own, length: 100 },
      { mr: nullOf(right, addr), length: 1500 },
      { mr: own, offset: 100, length: 400 },
    ]);
    left.post({ opcode: 'SEND', sge: [{ mr: left.register(source.buffer), length: 2000 }] });
    pair.run();
    expect(right.poll()).toMatchObject([{ status: 'SUCCESS', byteLen: 2000 }]);
    expect(memory.subarray(0, 500)).toEqual(
      Uint8Array.of(...source.subarray(0, 100), ...source.subarray(1600, 2000)),
    );
    left.poll();

    const into = new Uint8Array(64);
    left.post({
      opcode: 'RDMA_READ',
      sge: [
        { mr: nullOf(left, addr), length: 1990 },
        { mr: left.register(into.buffer), length: 10 },
      ],
      remote: right.register(source.slice().buffer),
    });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
    expect(into.subarray(0, 11)).toEqual(Uint8Array.of(...source.subarray(1990), 0));
  });
});

test('the zeros stay zeros, and lost packets are retransmitted from them', () => {
  const pair = new Pair({ mtu: 1024 });
  const { left, right } = pair;
  const target = filled(65_536, 1);
  const to = right.register(target.buffer);
  const { chance } = createRandom(1);
  pair.fault = (packet) => (chance(1 / 3) ? [] : [{ packet, delay: 0 }]);
  left.postRecv(1, [{ mr: nullOf(left), length: 5000 }]);
  right.post({ opcode: 'SEND', sge: [{ mr: to, length: 5000 }] });
  left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: nullOf(left), length: 65_536 }], remote: to });
  pair.run(60_000_000);
  expect(left.poll().map(({ status }) => status)).toEqual(['SUCCESS', 'SUCCESS']);
  expect(target).toEqual(new Uint8Array(65_536));
});

test('the value of an atomic may be discarded, and a datagram with its GRH', () => {
  const pair = new Pair();
  const word = new BigUint64Array([5n]);
  pair.left.post({
    opcode: 'ATOMIC_FETCH_AND_ADD',
    sge: [{ mr: nullOf(pair.left), length: 8 }],
    remote: pair.right.register(word.buffer),
    compareAdd: 3n,
  });
  pair.run();
  expect(pair.left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
  expect(word[0]).toBe(8n);

  const datagrams = new Pair({ type: 'UD' });
  const { left, right } = datagrams;
  const memory = new Uint8Array(8);
  right.postRecv(1, [
    { mr: nullOf(right), length: 40 },
    { mr: right.register(memory.buffer), length: 8 },
  ]);
  const ah = left.adapter.createAh(left.pd, addressOf(2));
  left.post({ opcode: 'SEND', inline: filled(8, 3), datagram: { ah, qpn: right.qp.qpn, qkey: QKEY } });
  datagrams.run();
  expect(right.poll()).toMatchObject([{ status: 'SUCCESS', byteLen: 48 }]);
  expect(memory).toEqual(filled(8, 3));
});

test('a frame gathers and scatters them; one longer than any interface takes fails', () => {
  const side = setUpRaw();
  side.activate();
  const { lkey } = side.adapter.allocNullMr(side.pd);
  side.send(1, [20, 40], undefined, lkey);
  side.port.arrived.push(frameOf(5));
  side.receive(2, 0, 64, lkey);
  expect(side.poll()).toEqual([
    [1, 'SUCCESS', 60],
    [2, 'SUCCESS', 60],
  ]);
  expect(side.port.sent).toEqual([new Uint8Array(60)]);
  expect(side.memory).toEqual(new Uint8Array(4096));
  side.send(3, [128 * 1024, 1], undefined, lkey);
  expect(side.poll()).toEqual([[3, 'LOC_LEN_ERR', 128 * 1024 + 1]]);
});

describe('its key', () => {
  test.each(['RDMA_WRITE', 'RDMA_READ', 'FLUSH'] as const)('opens nothing to a peer: %s', (opcode) => {
    const pair = new Pair({ attr: { qpAccessFlags: 0xe | Access.FLUSH_GLOBAL } });
    const { left, right } = pair;
    const mr = left.register(new ArrayBuffer(64));
    const remote = nullOf(right);
    left.post({
      opcode,
      ...(opcode === 'FLUSH' ? { flush: { length: 8, type: 0 } } : { sge: [{ mr, length: 8 }] }),
      remote,
    });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'REM_ACCESS_ERR' }]);
  });

  test('is of its protection domain, and of no window', () => {
    const pair = new Pair();
    const { left } = pair;
    const { adapter, pd } = left;
    const window = adapter.allocMw(pd, 2);
    const bind = { window: window.handle, length: 64, lkey: nullOf(left).lkey, access: Access.REMOTE_WRITE };
    left.post({ opcode: 'BIND_MW', remote: { addr: 0n, rkey: window.rkey ^ 1 }, bind });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'MW_BIND_ERR' }]);
    const next = new Pair();
    const foreign = nullOf(next.left, 0n, next.left.adapter.allocPd());
    next.left.post({
      opcode: 'RDMA_WRITE',
      sge: [{ mr: foreign, length: 8 }],
      remote: { addr: 0n, rkey: 0 },
    });
    next.run();
    expect(next.left.poll()).toMatchObject([{ status: 'LOC_PROT_ERR' }]);
  });

  test('is shut once the region is gone; it can not be registered anew', () => {
    const pair = new Pair();
    const { left } = pair;
    const { adapter, pd } = left;
    const mr = nullOf(left);
    const init = { pd, backing: 50, buffer: new ArrayBuffer(8), offset: 0, length: 8, access: 1 };
    expect(() => adapter.reregisterMr(mr.handle, init, true)).toThrow(
      expect.objectContaining({ errno: 'EINVAL', attribute: 'mr' }),
    );
    const own = adapter.allocPd();
    const { handle } = adapter.allocNullMr(own);
    expect(() => adapter.deallocPd(own)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    adapter.deregisterMr(handle);
    adapter.deallocPd(own);
    adapter.deregisterMr(mr.handle);
    expect(() => adapter.deregisterMr(mr.handle)).toThrow('no such memory region');
    expect(() => adapter.allocNullMr(own)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
    left.post({ opcode: 'RDMA_WRITE', sge: [{ mr, length: 8 }], remote: { addr: 0n, rkey: 0 } });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'LOC_PROT_ERR' }]);
  });

  test('counts among the regions of the device', () => {
    const pair = new Pair({ left: { limits: { maxMr: 1 } } });
    const { adapter, pd } = pair.left;
    const { handle } = adapter.allocNullMr(pd);
    expect(() => adapter.allocNullMr(pd)).toThrow(expect.objectContaining({ errno: 'ENOMEM' }));
    adapter.deregisterMr(handle);
    adapter.allocNullMr(pd);
  });
});
