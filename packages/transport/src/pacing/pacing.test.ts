/** rate_limit, and objects that change size or rights while they are in use. */
import { describe, expect, test, vi } from 'vitest';
import { addressOf, Pair, QKEY } from '../../testing/pair.ts';
import { AddressHandle } from '../addresses.ts';
import { Access, Cqe, Ring, SendWqe } from '../index.ts';

describe('rateLimitWithin5Percent', () => {
  test.each([8_000, 100_000, 1_000_000])(
    '%i kbps over a second of virtual time, within 5 percent',
    (kbps) => {
      const pair = new Pair({ mtu: 1024 });
      const { left, right } = pair;
      left.adapter.modifyQp(left.qp.qpn, { rateLimit: kbps });
      const size = 64 * 1024;
      const from = left.register(new ArrayBuffer(size));
      const to = right.register(new ArrayBuffer(size));
      let posted = 0;
      const fill = () => {
        for (; posted < 8; posted++) {
          left.post({
            opcode: 'RDMA_WRITE',
            sge: [{ mr: from, length: size }],
            remote: { addr: to.addr, rkey: to.rkey },
          });
        }
        posted -= left.poll().length;
      };
      for (let t = 0; t < 1000; t++) {
        fill();
        pair.run(1000);
      }
      // IPv4, UDP and ICRC are around each packet.
      const bits = pair.sent.filter(({ from: side, at }) => side === left && at < 1_000_000);
      const sum = bits.reduce((total, { packet }) => total + (packet.length + 20 + 8 + 4) * 8, 0);
      expect(sum / 1000 / kbps).toBeGreaterThan(0.95);
      expect(sum / 1000 / kbps).toBeLessThan(1.05);
      expect(left.adapter.qpCounters(left.qp.qpn).retransmittedPackets).toBe(0);
    },
  );
});

test.each(['UC', 'UD'] as const)('%s is paced, and completes at that pace', (type) => {
  const kbps = 8_000;
  const pair = new Pair({ type, mtu: 1024 });
  const { left, right } = pair;
  left.adapter.modifyQp(left.qp.qpn, { rateLimit: kbps });
  const length = 1024;
  const mr = left.register(new ArrayBuffer(length));
  const ah = left.adapter.createAh(left.pd, addressOf(2));
  const datagram = type === 'UD' ? { ah, qpn: right.qp.qpn, qkey: QKEY } : undefined;
  for (let i = 0; i < 60; i++)
    left.post({ opcode: 'SEND', sge: [{ mr, length }], ...(datagram ? { datagram } : {}) });
  pair.run(50_000);
  const bits = pair.sent.reduce((total, { packet }) => total + (packet.length + 20 + 8 + 4) * 8, 0);
  // 50 ms, and 2 ms that a late turn may catch up.
  expect(bits / kbps).toBeGreaterThan(47);
  expect(bits / kbps).toBeLessThan(53);
  const early = pair.sent.length;
  expect(left.poll()).toHaveLength(early);
  pair.run(1_000_000);
  expect(pair.sent).toHaveLength(60);
  const late = left.poll();
  expect(late).toHaveLength(60 - early);
  expect(new Set(late.map(({ status }) => status))).toEqual(new Set(['SUCCESS']));
});

// Once: an exception, which stopped every queue pair of the device.
test('a paced datagram leaves though another thread changes its entry meanwhile', () => {
  const pair = new Pair({ type: 'UD' });
  const { left, right } = pair;
  left.adapter.modifyQp(left.qp.qpn, { rateLimit: 8_000 });
  const ah = left.adapter.createAh(left.pd, addressOf(2));
  const { sq } = left;
  const entry = sq.wordOf(sq.producer);
  vi.spyOn(AddressHandle.prototype, 'sourcePort').mockImplementationOnce(() => {
    sq.words[entry + SendWqe.ADDRESS_HANDLE] = 12345;
    return 49152;
  });
  left.post({ opcode: 'SEND', inline: Uint8Array.of(1), datagram: { ah, qpn: right.qp.qpn, qkey: QKEY } });
  pair.run();
  expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
});

test('static_rate, sl, dlid and src_path_bits are kept and change neither packets nor their times', () => {
  const run = (path: object) => {
    const pair = new Pair({ mtu: 1024 });
    const { left, right } = pair;
    const ahAttr = { ...addressOf(2), ...path };
    left.adapter.modifyQp(left.qp.qpn, { qpState: 'SQD' });
    left.adapter.modifyQp(left.qp.qpn, { qpState: 'SQD', ahAttr });
    left.adapter.modifyQp(left.qp.qpn, { qpState: 'RTS' });
    expect(left.adapter.queryQp(left.qp.qpn).attr.ahAttr).toMatchObject(path);
    const length = 64 * 1024;
    const from = left.register(new ArrayBuffer(length));
    const remote = right.register(new ArrayBuffer(length));
    left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: from, length }], remote });
    pair.run();
    expect(left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
    return pair.sent.map(({ at, packet }) => `${at} ${packet.subarray(0, 12)} ${packet.length}`);
  };
  // 2.5 Gb/s are the lowest rate that there is: 64 KiB take 210 us.
  const limited = run({ staticRate: 2, sl: 5, dlid: 0x1234, srcPathBits: 3 });
  expect(limited).toEqual(run({}));
  expect(limited.length).toBeGreaterThan(64);
});

describe('completion queues', () => {
  test('resize: completions go on in the new ring, in order; arming either ring counts', () => {
    const events: number[] = [];
    const pair = new Pair({ left: { onCompletionEvent: (cq) => events.push(cq) } });
    const { left, right } = pair;
    const from = left.register(new ArrayBuffer(64));
    const to = right.register(new ArrayBuffer(64));
    const write = (wrId: number) => {
      left.post({
        wrId,
        opcode: 'RDMA_WRITE',
        sge: [{ mr: from }].map((e) => ({ ...e, length: 8 })),
        remote: to,
      });
      pair.run();
    };
    write(1);
    const before = left.cq;
    const { cqe, ring } = left.adapter.resizeCq(left.cqHandle, 10_000);
    expect(cqe).toBe(16_384);
    before.arm(1); // The program has not heard of the new ring.
    write(2);
    expect(events).toEqual([left.cqHandle]);
    const after = new Ring(ring);
    after.arm(1);
    write(3);
    expect(events).toHaveLength(2);
    expect(left.poll().map(({ wrId }) => wrId)).toEqual([1]);
    expect([0, 1].map((i) => after.words[after.wordOf(i) + Cqe.WR_ID_LOW])).toEqual([2, 3]);
    expect(after.used).toBe(2);
  });

  test('not below what waits to be polled', () => {
    const pair = new Pair();
    const { left, right } = pair;
    const from = left.register(new ArrayBuffer(64));
    const to = right.register(new ArrayBuffer(64));
    for (let i = 0; i < 3; i++) {
      left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: from, length: 8 }], remote: to });
    }
    pair.run();
    expect(() => left.adapter.resizeCq(left.cqHandle, 2)).toThrow(
      expect.objectContaining({ attribute: 'cqe' }),
    );
    left.poll();
    expect(left.adapter.resizeCq(left.cqHandle, 2).cqe).toBe(2);
  });
});

describe('regions registered anew', () => {
  const write = (pair: Pair, remote: { addr: bigint; rkey: number }) => {
    const from = pair.left.register(new Uint8Array(64).fill(9).buffer);
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: from, length: 64 }], remote });
    pair.run();
    return pair.left.poll()[0].status;
  };

  test('other rights, the same keys and addresses', () => {
    const pair = new Pair();
    const { adapter, pd } = pair.right;
    const init = { pd, backing: 77, buffer: new ArrayBuffer(128), offset: 0, length: 128 };
    const mr = adapter.registerMr({ ...init, access: Access.LOCAL_WRITE });
    const again = adapter.reregisterMr(
      mr.handle,
      { ...init, access: Access.LOCAL_WRITE | Access.REMOTE_WRITE },
      false,
    );
    expect(again).toEqual(mr);
    expect(write(pair, mr)).toBe('SUCCESS');
  });

  test('another range has other keys, and the old ones are shut', () => {
    const pair = new Pair();
    const { adapter, pd } = pair.right;
    const init = { pd, backing: 77, buffer: new ArrayBuffer(128), offset: 0, length: 64, access: 0xf };
    const mr = adapter.registerMr(init);
    const again = adapter.reregisterMr(mr.handle, { ...init, offset: 64 }, true);
    expect(again.rkey).not.toBe(mr.rkey);
    expect(write(pair, again)).toBe('SUCCESS');
    expect([...new Uint8Array(init.buffer, 64)].every((byte) => byte === 9)).toBe(true);
    expect(write(pair, mr)).toBe('REM_ACCESS_ERR');
  });

  test('another PD takes it along', () => {
    const pair = new Pair();
    const { adapter, pd } = pair.right;
    const init = { pd, backing: 77, buffer: new ArrayBuffer(128), offset: 0, length: 64, access: 0xf };
    const mr = adapter.registerMr(init);
    const other = adapter.allocPd();
    adapter.reregisterMr(mr.handle, { ...init, pd: other }, false);
    expect(() => adapter.deallocPd(other)).toThrow(expect.objectContaining({ errno: 'EBUSY' }));
    expect(write(pair, mr)).toBe('REM_ACCESS_ERR');
    adapter.deregisterMr(mr.handle);
    adapter.deallocPd(other);
  });

  test('zero-based: its first byte is 0 to peers', () => {
    const pair = new Pair();
    const { adapter, pd } = pair.right;
    const buffer = new ArrayBuffer(128);
    const init = { pd, backing: 77, buffer, offset: 64, length: 64, access: 0xf | Access.ZERO_BASED };
    const mr = adapter.registerMr(init);
    expect(mr.iova).toBe(0n);
    expect(write(pair, { addr: 0n, rkey: mr.rkey })).toBe('SUCCESS');
    expect(new Uint8Array(buffer)[64]).toBe(9);
    expect(() => adapter.registerMr({ ...init, iova: 4096n })).toThrow(
      expect.objectContaining({ attribute: 'iova' }),
    );
  });
});
