/** Very many busy queue pairs on one slow link without losses: no timer may run out while a queue pair waits its turn. */
import { CONNECTION_DEFAULTS } from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { require } from '../../../packages/sim/src/network/workload-checks.ts';
import { Express, type ExpressHost } from './express.ts';
import { ExpressQp } from './express-qp.ts';

export interface BusyOptions {
  seed: number;
  /** Busy queue pairs, and bytes that each writes. */
  queuePairs: number;
  bytes: number;
  /** Code of the local ACK timeout. */
  timeout: number;
  /** Packets that the link takes in a millisecond. */
  packetsPerMs: number;
  /** Both sides write. */
  bothWays?: boolean;
}

export interface BusyOutcome {
  /** Virtual time, µs. */
  time: number;
  packets: number;
  timeouts: number;
  retransmitted: number;
  /** Longest time from a lone message's post to its completion, µs, while the others are busy. */
  lone: number;
}

const ACCESS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;
/** Steps of a millisecond. */
const STEPS = 4;
const MTU = 1024;
/** Turns between two polls of all queue pairs: each costs more than a turn. */
const POLLED = 16;

/** @throws Error when a connection ends, or when it takes much longer than the link needs */
export function runBusy(options: BusyOptions): BusyOutcome {
  const { seed, queuePairs, bytes, timeout, packetsPerMs, bothWays = false } = options;
  const express = new Express({
    seed,
    packetBytes: MTU + 64,
    capacity: 2048,
    delay: 50,
    room: packetsPerMs / STEPS,
    checkEvery: 4000,
  });
  const [left, right] = express.hosts;
  const register = (host: ExpressHost, length: number) => {
    const buffer = new ArrayBuffer(length);
    return host.adapter.registerMr({ pd: host.pd, backing: 1, buffer, offset: 0, length, access: ACCESS });
  };
  const regions = [register(left, bytes), register(right, bytes)];
  const connection = { ...CONNECTION_DEFAULTS, pathMtu: MTU, timeout };
  let outstanding = 0;
  const pairs = Array.from({ length: queuePairs + 1 }, () => {
    const [a, b] = [left, right].map((host) => new ExpressQp(host, { depth: 4, psn: 0xff_fff0 }));
    a.connect(b, connection);
    b.connect(a, connection);
    return [a, b] as const;
  });
  const lone = pairs.pop()!;
  for (const [a, b] of pairs) {
    const write = (qp: ExpressQp, from: number) => {
      const [local, remote] = [regions[from], regions[1 - from]].map((mr) => ({ mr, offset: 0 }));
      qp.post('RDMA_WRITE', 1, local, bytes, remote, true);
      outstanding++;
    };
    write(a, 0);
    if (bothWays) write(b, 1);
  }
  const packets = (outstanding * bytes) / MTU;
  const limit = ((packets / packetsPerMs) * 1.5 + 1000) * 1000;
  let [waits, posted, longest, turns] = [false, 0, 0, 0];
  while (outstanding > 0) {
    express.turn();
    for (const pair of ++turns % POLLED === 0 ? pairs : []) {
      for (const qp of pair) qp.pollSend(() => outstanding--);
    }
    lone[1].pollSend(() => {
      waits = false;
      longest = Math.max(longest, express.now - posted);
    });
    // The other side of the busy link sends a message now and then: its ACK has to come back between all the others.
    if (!waits) {
      waits = true;
      posted = express.now;
      lone[1].post('RDMA_WRITE', 2, { mr: regions[1], offset: 0 }, 8, { mr: regions[0], offset: 0 }, true);
    }
    require(express.now < limit, 'the queue pairs take too long', { outstanding, now: express.now });
    express.now += 1000 / STEPS;
  }
  const [a, b] = [left.adapter.counters(), right.adapter.counters()];
  require(left.counts.overflowed + right.counts.overflowed === 0, 'the wire lost packets', left.counts);
  return {
    time: express.now,
    packets: left.counts.sent + right.counts.sent,
    timeouts: a.timeouts + b.timeouts,
    retransmitted: a.retransmittedPackets + b.retransmittedPackets,
    lone: longest,
  };
}
