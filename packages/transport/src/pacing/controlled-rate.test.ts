/** A queue pair under DCQCN sends requests and READ responses at its controller's rate. */
import { bthOpcode, bthPsn, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand } from '../../testing/by-hand.ts';
import type { CongestionController } from '../congestion/controller.ts';
import { ControlledRate, RATE_GRAIN } from './controlled-rate.ts';

/** With an IPv4 header, UDP's and the ICRC, 1000 bytes: 8 µs at 1 Gb/s. */
const BYTES = 1000 - 20 - 8 - 4;
const MTU = 1024;

describe('the pacer', () => {
  const setUp = (rate: number) => {
    const onSent = (bytes: number) => {
      controller.bytes += bytes;
    };
    const controller = { rate, bytes: 0, onSent };
    const pacer = new ControlledRate(controller as unknown as CongestionController);
    const burst = (now: number) => {
      let count = 0;
      for (; count < 1000 && pacer.wait(now) === 0; count++) pacer.charge(BYTES, 20);
      return count;
    };
    return { controller, pacer, burst };
  };

  test('a packet leaves when the one before it has taken its time', () => {
    const { pacer, burst, controller } = setUp(1_000_000);
    expect(burst(100)).toBe(1);
    expect(pacer.wait(100)).toBe(8);
    expect(pacer.wait(107)).toBe(1);
    expect(burst(108)).toBe(1);
    expect(controller.bytes).toBe(2000);
  });

  test('a late turn catches up as much as the grain allows, and no more', () => {
    const { burst } = setUp(1_000_000);
    expect(burst(0)).toBe(1);
    expect(burst(80)).toBe(10);
    expect(burst(1e6)).toBe(RATE_GRAIN / 8 + 1);
  });

  test('nothing is saved up while there was no rate', () => {
    const { controller, burst, pacer } = setUp(0);
    expect([pacer.limited, burst(1e6)]).toEqual([false, 1000]);
    controller.rate = 1_000_000;
    expect([pacer.limited, burst(1e6)]).toEqual([true, 1]);
    controller.rate = 0;
    expect(pacer.limited).toBe(false);
    controller.rate = 1_000_000;
    expect([pacer.limited, burst(2e6)]).toEqual([true, 1]);
  });

  test('another rate changes the wait that is left', () => {
    const { controller, burst, pacer } = setUp(1_000_000);
    expect(burst(0)).toBe(1);
    controller.rate = 2_000_000;
    expect(pacer.wait(4)).toBe(2);
    controller.rate = 100_000;
    expect(pacer.wait(5)).toBe(20);
  });

  test('a long wait is looked at again after a millisecond', () => {
    const { controller, burst, pacer } = setUp(1_000);
    expect(burst(0)).toBe(1);
    expect(pacer.wait(0)).toBe(1_000);
    controller.rate = 1_000_000;
    expect(pacer.wait(1_000)).toBe(7);
  });
});

describe('a queue pair', () => {
  /** 1 Gb/s. For a second after a CNP neither the rate grows, nor α becomes smaller. */
  const options = { controller: 'dcqcn', rpgMaxRate: 1000, rpgTimeReset: 1e6, alphaPeriod: 1e6 } as const;

  const setUp = () => {
    const hand = new ByHand({ pathMtu: MTU, rqPsn: 1000 }, { congestion: options });
    const memory = hand.side.register(new ArrayBuffer(1 << 20));
    const notify = () => hand.put({ opcode: Opcode.CNP, psn: 0, ackReq: false, payload: new Uint8Array(16) });
    /** Packets of so many µs, each with the time it left, while everything is acknowledged. */
    const run = (microseconds: number) => {
      const packets: { at: number; packet: Uint8Array }[] = [];
      for (const end = hand.now + microseconds; hand.now < end; ) {
        const out = hand.out();
        packets.push(...out.map((packet) => ({ at: hand.now, packet })));
        for (const packet of out) {
          if (bthOpcode(packet, 0) > Opcode.RC_RDMA_WRITE_ONLY) continue;
          hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: bthPsn(packet, 0), aeth: { syndrome: 31 } });
        }
        hand.now = Math.max(hand.now, Math.min(end, hand.side.adapter.nextDeadline()));
        hand.side.adapter.advance();
      }
      return packets;
    };
    return { hand, memory, notify, run };
  };
  const rateOf = (packets: { packet: Uint8Array }[], time: number) =>
    packets.reduce((bits, { packet }) => bits + (packet.length + 32) * 8, 0) / time;

  test('WRITEs leave one by one at half of the line rate after one CNP, at a quarter after two', () => {
    const { hand, memory, notify, run } = setUp();
    for (let i = 0; i < 8; i++) {
      hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: memory, length: 1 << 20 }], remote: memory });
    }
    notify();
    const first = run(10_000);
    expect(rateOf(first, 10_000)).toBeGreaterThan(495);
    expect(rateOf(first, 10_000)).toBeLessThan(505);
    expect(new Set(first.map(({ at }) => at)).size).toBe(first.length);
    notify();
    const second = rateOf(run(10_000), 10_000);
    expect(second).toBeGreaterThan(240);
    expect(second).toBeLessThan(260);
  });

  test('READ responses too; the ACK of another request waits behind them, one before does not', () => {
    const { hand, memory, notify, run } = setUp();
    const { addr, rkey } = memory;
    notify();
    const write = (psn: number) => ({
      opcode: Opcode.RC_RDMA_WRITE_ONLY,
      psn,
      reth: { addr, rkey, length: 4 },
      payload: new Uint8Array(4),
    });
    hand.put(
      write(1000),
      { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1001, reth: { addr, rkey, length: 100 * MTU } },
      write(1101),
    );
    const sent = run(3000);
    const opcodes = sent.map(({ packet }) => bthOpcode(packet, 0));
    expect(opcodes.length).toBe(102);
    expect([opcodes[0], opcodes.at(-1)]).toEqual([Opcode.RC_ACKNOWLEDGE, Opcode.RC_ACKNOWLEDGE]);
    expect(sent[0].at).toBe(sent[1].at);
    const [from, to] = [sent[1].at, sent[100].at];
    const rate = rateOf(sent.slice(1, 100), to - from);
    expect(rate).toBeGreaterThan(495);
    expect(rate).toBeLessThan(505);
  });

  test('requests and READ responses leave in turn', () => {
    const { hand, memory, notify, run } = setUp();
    const { addr, rkey } = memory;
    for (let i = 0; i < 8; i++) {
      hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: memory, length: 1 << 20 }], remote: memory });
    }
    notify();
    run(1000);
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1000, reth: { addr, rkey, length: 20 * MTU } });
    const isResponse = run(1000).map(
      ({ packet }) =>
        bthOpcode(packet, 0) >= Opcode.RC_RDMA_READ_RESPONSE_FIRST &&
        bthOpcode(packet, 0) <= Opcode.RC_RDMA_READ_RESPONSE_ONLY,
    );
    expect(isResponse.filter((is) => is)).toHaveLength(20);
    expect(isResponse.lastIndexOf(true)).toBeLessThan(44);
  });

  test('RESET ends a wait, and the next connection starts at line rate', () => {
    const { hand, memory, notify } = setUp();
    const { addr, rkey } = memory;
    notify();
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1000, reth: { addr, rkey, length: 10 * MTU } });
    expect(hand.out()).toHaveLength(1);
    const { adapter, qp } = hand.side;
    adapter.modifyQp(qp.qpn, { qpState: 'RESET' });
    expect(adapter.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
    hand.connect({ pathMtu: MTU, rqPsn: 1000 });
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1000, reth: { addr, rkey, length: 10 * MTU } });
    expect(hand.out()).toHaveLength(10);
  });

  test('RESET during an answer that waits for the rate: requests of the next connection do not wait for it', () => {
    const { hand, memory, notify, run } = setUp();
    const { addr, rkey } = memory;
    notify();
    hand.put({ opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 1000, reth: { addr, rkey, length: 10 * MTU } });
    expect(hand.out()).toHaveLength(1);
    hand.side.adapter.modifyQp(hand.side.qp.qpn, { qpState: 'RESET' });
    hand.connect({ pathMtu: MTU, rqPsn: 1000 });
    notify();
    hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: memory, length: 20 * MTU }], remote: memory });
    expect(run(2_000)).toHaveLength(20);
  });

  test('an answer that waits for the rate and is dropped, as its memory is gone: requests go on', () => {
    const { hand, memory, notify, run } = setUp();
    const own = hand.side.register(new ArrayBuffer(1 << 16));
    const read = {
      opcode: Opcode.RC_RDMA_READ_REQUEST,
      psn: 1000,
      reth: { addr: memory.addr, rkey: memory.rkey, length: 10 * MTU },
    };
    hand.put(read);
    expect(run(1_000)).toHaveLength(10);
    notify();
    hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: own, length: 3 * MTU }], remote: own });
    // A duplicate.
    hand.put(read);
    hand.out();
    hand.side.adapter.deregisterMr(memory.handle);
    hand.put({
      opcode: Opcode.RC_RDMA_WRITE_ONLY,
      psn: 1010,
      reth: { addr: own.addr, rkey: own.rkey, length: 4 },
      payload: new Uint8Array(4),
    });
    hand.side.post({ opcode: 'RDMA_WRITE', sge: [{ mr: own, length: 20 * MTU }], remote: own });
    expect(run(2_000).length).toBeGreaterThan(20);
  });
});
