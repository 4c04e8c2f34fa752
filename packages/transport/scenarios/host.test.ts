/** The callbacks of a host: state changes, and each packet that is retransmitted with its cause. */
import { bthOpcode, bthPsn, Opcode } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { Access, type AdapterOptions, type RetransmitCause } from '../src/index.ts';
import { type Fault, Pair, type PairOptions, type WorkInit } from '../testing/pair.ts';

const FULL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

/** A pair whose left side is watched. */
function watched(options: PairOptions = {}) {
  const repeats: [RetransmitCause, number][] = [];
  const states: string[] = [];
  const left: Partial<AdapterOptions> = {
    ...options.left,
    onRetransmit(qpn, psn, cause) {
      expect(qpn).toBe(pair.left.qp.qpn);
      repeats.push([cause, psn]);
    },
    onStateChange: (_qpn, from, to) => states.push(`${from} ${to}`),
  };
  const pair = new Pair({ ...options, left });
  states.length = 0;
  const local = pair.left.register(new ArrayBuffer(16_384), FULL);
  const remote = pair.right.register(new ArrayBuffer(16_384), FULL);
  const write = (length = 8, more: Partial<WorkInit> = {}) =>
    pair.left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length }], remote, ...more });
  return { pair, local, remote, repeats, states, write };
}

/** Loses the packets that the left or the right sends, by their number from here on. */
function lose(pair: Pair, side: 'left' | 'right', ...numbers: number[]): void {
  let seen = 0;
  const isTheirs = (packet: Uint8Array) =>
    (bthOpcode(packet, 0) >= Opcode.RC_RDMA_READ_RESPONSE_FIRST &&
      bthOpcode(packet, 0) <= Opcode.RC_ACKNOWLEDGE) !==
    (side === 'left');
  const fault: Fault = (packet) =>
    isTheirs(packet) && numbers.includes(seen++) ? [] : [{ packet, delay: 0 }];
  pair.fault = fault;
}

/** The PSNs that the left sent more than once. */
function repeatedPsns(pair: Pair): number[] {
  const seen = new Set<number>();
  return pair.sent
    .filter(({ from }) => from === pair.left)
    .map(({ packet }) => bthPsn(packet, 0))
    .filter((psn) => seen.has(psn) || !seen.add(psn));
}

describe('retransmission', () => {
  const done = ({ pair, repeats }: ReturnType<typeof watched>, causes: RetransmitCause[]) => {
    expect(pair.left.poll().every(({ status }) => status === 'SUCCESS')).toBe(true);
    expect(repeats.map(([, psn]) => psn)).toEqual(repeatedPsns(pair));
    expect(pair.left.adapter.qpCounters(pair.left.qp.qpn).retransmittedPackets).toBe(repeats.length);
    expect(repeats.map(([cause]) => cause)).toEqual(causes);
  };

  test('timeout: nothing comes back', () => {
    const set = watched({ left: { recovery: { probes: false } } });
    lose(set.pair, 'left', 0, 1, 2);
    set.write(3000);
    set.pair.run();
    done(set, ['timeout', 'timeout', 'timeout']);
  });

  test('sequence-nak: one in the middle is lost', () => {
    const set = watched();
    lose(set.pair, 'left', 1);
    set.write(4096);
    set.pair.run();
    done(set, ['sequence-nak', 'sequence-nak', 'sequence-nak']);
  });

  test('implied-nak: a READ response is lost', () => {
    const set = watched();
    lose(set.pair, 'right', 1);
    set.pair.left.post({
      opcode: 'RDMA_READ',
      sge: [{ mr: set.local, length: 3000 }],
      remote: set.remote,
    });
    set.pair.run();
    expect(set.pair.left.poll()).toMatchObject([{ status: 'SUCCESS' }]);
    // The request for the rest: its PSN is the missing response's, which no request had.
    expect(set.repeats).toEqual([['implied-nak', 0x11]]);
  });

  test('rnr: no receive was posted yet', () => {
    const set = watched({ attr: { minRnrTimer: 14 } });
    set.pair.left.post({ opcode: 'SEND', sge: [{ mr: set.local, length: 8 }] });
    set.pair.run(500);
    expect(set.repeats).toEqual([]);
    set.pair.right.postRecv(1, [{ mr: set.remote, length: 64 }]);
    set.pair.run();
    done(set, ['rnr']);
  });

  test('probe: the tail is lost, the round trip is known', () => {
    const set = watched({ attr: { timeout: 20 } });
    set.write();
    set.pair.run();
    lose(set.pair, 'left', 0);
    set.write();
    set.pair.run();
    done(set, ['probe']);
  });
});

test('states, from creation to destruction; the same state again is no change', () => {
  const { pair, states } = watched();
  const { left } = pair;
  left.createQp();
  pair.right.createQp();
  pair.connect();
  const modify = (qpState: 'SQD' | 'RTS' | 'ERR' | 'RESET') =>
    left.adapter.modifyQp(left.qp.qpn, { qpState });
  for (const state of ['RTS', 'SQD', 'SQD', 'RTS', 'ERR', 'ERR', 'RESET'] as const) modify(state);
  left.adapter.destroyQp(left.qp.qpn);
  expect(states).toEqual([
    'RESET INIT',
    'INIT RTR',
    'RTR RTS',
    'RTS SQD',
    'SQD RTS',
    'RTS ERR',
    'ERR RESET',
    'RESET undefined',
  ]);
});

test('a failure is a state change of its own', () => {
  const { pair, states, write, remote } = watched();
  write(8, { remote: { ...remote, rkey: 0x5600 } });
  pair.run();
  expect(states).toEqual(['RTS ERR']);
});
