/**
 * Programs that do nothing but poll, in virtual time, on the whole stack over memory links: one queue pair keeps the polled
 * completion queue and the socket full, while others lose packets and run into RNR NAKs. Their timers run all the same:
 * each message is done within a bounded time, and nobody's connection ends.
 *
 * ROCE_SIM_SEEDS=200 npx vitest run test/sim/polling; ROCE_SIM_FIRST=17 ROCE_SIM_SEEDS=1 is one of them again.
 */
import { MemoryNetwork } from '@node-roce/link';
import { createRandom, type Random } from '@node-roce/sim';
import { bthDestQp } from '@node-roce/wire';
import { afterEach, expect, test, vi } from 'vitest';
import { openSide, type Side } from '../../packages/verbs-api/testing/pair.ts';

type QueuePair = Side['qp'];

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 1);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);

/** Queue pairs with something to wait for, and messages that each sends. */
const QUIET = 3;
const MESSAGES = 5;
/** Messages of the busy queue pair outstanding. */
const BUSY = 24;
/** A message of a quiet queue pair may take so long once its receive is there, µs: some timeouts in a row. */
const LIMIT = 150_000;
const LENGTH = 64;

afterEach(() => vi.restoreAllMocks());

/** The clock of the process, which stands still while nobody polls; µs. */
function virtualClock(): { now: number } {
  const clock = { now: 1e6 };
  vi.spyOn(performance, 'now').mockImplementation(() => clock.now / 1000);
  return clock;
}

interface Quiet {
  from: QueuePair;
  to: QueuePair;
  sent: number;
  done: number;
  receives: number;
  /** When the message that is out could be done, µs; 0 while its receive is missing. */
  since: number;
  longest: number;
}

/** A socket that gives four packets a call: there is always something left in it. */
function slowly(network: MemoryNetwork): void {
  const make = network.link.bind(network);
  network.link = (address, mtu) => {
    const link = make(address, mtu);
    const receive = link.receive.bind(link);
    link.receive = (batch) => {
      const { capacity } = batch;
      (batch as { capacity: number }).capacity = 4;
      try {
        return receive(batch);
      } finally {
        (batch as { capacity: number }).capacity = capacity;
      }
    };
    return link;
  };
}

/** Loses packets to some queue pairs. Returns how many it lost so far. */
function lossy(network: MemoryNetwork, random: Random, qpns: ReadonlySet<number>): () => number {
  let lost = 0;
  const deliver = network.deliver.bind(network);
  network.deliver = (packet, destination) => {
    if (qpns.has(bthDestQp(packet.bytes, 0)) && random.chance(0.15)) lost++;
    else deliver(packet, destination);
  };
  return () => lost;
}

async function poll(seed: number): Promise<{ lost: number; rnr: number; polls: number; full: number }> {
  const random = createRandom(seed);
  const clock = virtualClock();
  const network = new MemoryNetwork();
  slowly(network);
  const options = { cqe: 1024, cap: { maxRecvWr: 256, maxSendWr: 256 } };
  const [a, b] = [await openSide(network, '10.0.0.1', options), await openSide(network, '10.0.0.2', options)];
  const connect = { timeout: 9, minRnrTimer: random.pick([1, 8, 14]) };
  const join = async (left: QueuePair, right: QueuePair) => {
    await left.connect(right.connectionData(), connect);
    await right.connect(left.connectionData(), connect);
  };
  await join(a.qp, b.qp);
  const quiet: Quiet[] = [];
  for (let i = 0; i < QUIET; i++) {
    const [from, to] = [await a.pd.createQp({ sendCq: a.cq }), await b.pd.createQp({ sendCq: b.cq })];
    await join(from, to);
    quiet.push({ from, to, sent: 0, done: 0, receives: 0, since: 0, longest: 0 });
  }
  const lost = lossy(network, random, new Set(quiet.flatMap(({ from, to }) => [from.qpNum, to.qpNum])));
  const [elementA, elementB] = [a, b].map(({ mr }) => [{ mr, length: LENGTH }]);
  const receive = () => a.qp.postRecv({ wrId: 1_000, sgList: elementA });
  for (let i = 0; i < 2 * BUSY; i++) receive();

  let [out, polls, full] = [0, 0, 0];
  const begin = clock.now;
  const take = (side: Side, each: (wrId: number) => void) => {
    clock.now += random.between(1, 4);
    polls++;
    const found = side.cq.poll(16);
    if (found.length > 0) full++;
    for (const { status, wrIdNumber } of found) {
      expect(status, `seed ${seed}`).toBe('SUCCESS');
      each(wrIdNumber);
    }
  };
  const onB = (wrId: number) => {
    if (wrId === 2_000) out--;
  };
  const onA = (wrId: number) => {
    if (wrId === 1_000) return receive();
    const lane = quiet[wrId];
    if (lane === undefined) return;
    lane.longest = Math.max(lane.longest, clock.now - lane.since);
    lane.done++;
    lane.since = 0;
  };
  while (quiet.some(({ done }) => done < MESSAGES)) {
    while (out < BUSY) {
      b.qp.postSend({ wrId: 2_000, opcode: 'SEND', sgList: elementB, signaled: true });
      out++;
    }
    take(b, onB);
    take(a, onA);
    for (const [i, lane] of quiet.entries()) {
      if (lane.sent === lane.done && lane.sent < MESSAGES) {
        lane.from.postSend({ wrId: i, opcode: 'SEND', sgList: elementA, signaled: true });
        lane.sent++;
      }
      if (lane.receives < lane.sent && random.chance(0.02)) {
        lane.to.postRecv({ wrId: 3_000, sgList: elementB });
        lane.receives++;
        lane.since = clock.now;
      }
      const waits = lane.since > 0 ? clock.now - lane.since : 0;
      if (waits > LIMIT) throw new Error(`seed ${seed}: a message waits for ${waits} µs`);
    }
    if (clock.now - begin > 60e6) throw new Error(`seed ${seed}: no end`);
  }
  let rnr = 0;
  for (const { from } of quiet) rnr += (await from.counters()).receivedRnrErr;
  vi.restoreAllMocks();
  await a.device.close();
  await b.device.close();
  return { lost: lost(), rnr, polls, full };
}

test(`timers run while programs poll, ${SEEDS} seeds`, { timeout: 300_000 + SEEDS * 20_000 }, async () => {
  const sums = { lost: 0, rnr: 0, polls: 0, full: 0 };
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    const counts = await poll(seed);
    for (const name of ['lost', 'rnr', 'polls', 'full'] as const) sums[name] += counts[name];
  }
  console.log(JSON.stringify(sums));
  expect(sums.lost).toBeGreaterThanOrEqual(SEEDS);
  expect(sums.rnr).toBeGreaterThanOrEqual(SEEDS);
  // The program was busy: nearly every poll found something, but for those that sent an answer and did not look.
  expect(sums.full / sums.polls).toBeGreaterThan(0.7);
});
