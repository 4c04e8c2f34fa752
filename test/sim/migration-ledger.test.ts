/**
 * Path migration under traffic: each run moves 75 MiB over a connection that migrates 100 times, back and forth between two paths, each time
 * in the middle of a message. A ledger, not a model: every request is executed once, all bytes are in their place, both sides hear of each
 * migration once.
 */
// @module-tag slow
import { createRandom } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import type { MrCreated, QpAttr } from '../../packages/transport/src/index.ts';
import { type Completion, Pair, type Side } from '../../packages/transport/testing/pair.ts';
import { alternateTo, migrating } from '../../packages/transport/testing/two-paths.ts';

const MIGRATIONS = 100;
const MTU = 4096;
/** Of each of WRITE, SEND and READ, in a round. */
const LENGTH = 256 * 1024;

/** A side that asks, the one that answers, and the memory of both. */
class Flow {
  readonly side: Side;
  readonly peer: Side;
  readonly #length: number;
  readonly #source = new Uint8Array(LENGTH);
  readonly #written = new Uint8Array(LENGTH);
  readonly #received = new Uint8Array(LENGTH);
  readonly #read = new Uint8Array(LENGTH);
  readonly #counter = new BigUint64Array(1);
  readonly #regions: Record<'source' | 'written' | 'received' | 'read' | 'counter' | 'result', MrCreated>;
  #rounds = 0;

  /** @param length of each message, bytes */
  constructor(side: Side, peer: Side, length: number) {
    this.side = side;
    this.peer = peer;
    this.#length = length;
    this.#regions = {
      source: side.register(this.#source.buffer),
      read: side.register(this.#read.buffer),
      result: side.register(new ArrayBuffer(8)),
      written: peer.register(this.#written.buffer),
      received: peer.register(this.#received.buffer),
      counter: peer.register(this.#counter.buffer),
    };
  }

  /** Posts a WRITE, a SEND, an atomic and a READ of the WRITE's data. */
  begin(random: () => number): void {
    const { side, peer } = this;
    const { source, written, received, read, counter, result } = this.#regions;
    const length = this.#length;
    const words = new Uint32Array(this.#source.buffer);
    for (let i = 0; i < words.length; i++) words[i] = random();
    peer.postRecv(1, [{ mr: received, length }]);
    side.post({ opcode: 'RDMA_WRITE', wrId: 1, sge: [{ mr: source, length }], remote: written });
    side.post({ opcode: 'SEND', wrId: 2, sge: [{ mr: source, length }] });
    const sge = [{ mr: result, length: 8 }];
    side.post({ opcode: 'ATOMIC_FETCH_AND_ADD', wrId: 3, compareAdd: 1n, sge, remote: counter });
    side.post({ opcode: 'RDMA_READ', wrId: 4, sge: [{ mr: read, length }], remote: written });
  }

  /** All of it is done, once. */
  end(requests: Completion[], receives: Completion[]): void {
    const length = this.#length;
    const done = [1, 2, 3, 4].map((id) => [id, 'SUCCESS']);
    expect(requests.map(({ wrId, status }) => [wrId, status])).toEqual(done);
    expect(receives.map(({ byteLen, status }) => [byteLen, status])).toEqual([[length, 'SUCCESS']]);
    expect(this.#counter[0]).toBe(BigInt(++this.#rounds));
    const source = this.#source.subarray(0, length);
    for (const memory of [this.#written, this.#received, this.#read]) {
      expect(Buffer.compare(memory.subarray(0, length), source)).toBe(0);
      memory.fill(0);
    }
  }
}

/** IBV_WC_RECV and above: of the receive queue. */
const isReceive = ({ opcode }: { opcode: number }) => opcode >= 128;

type Who = 'left' | 'right' | 'both';

/** @returns bytes of messages, and migrations before the last answer of a round */
function play(cause: 'retries' | 'modify', who: Who): { bytes: number; middles: number } {
  const random = createRandom(7 + who.length);
  const pair = new Pair({
    mtu: MTU,
    left: migrating(1),
    right: migrating(2),
    attr: { timeout: 8, retryCnt: 2 },
  });
  const { left, right } = pair;
  const sides = [left, right];
  const asking = who === 'both' ? sides : [pair[who]];
  const flows = asking.map((side) => new Flow(side, side === left ? right : left, LENGTH / asking.length));
  const modify = (side: Side, attr: QpAttr) => side.adapter.modifyQp(side.qp.qpn, attr);
  const query = (side: Side) => side.adapter.queryQp(side.qp.qpn).attr;
  const exchange = () => {
    for (const side of sides) side.post({ opcode: 'RDMA_WRITE', wrId: 9, sge: [] });
    pair.run();
    for (const side of sides) expect(side.poll()).toMatchObject([{ wrId: 9, status: 'SUCCESS' }]);
  };
  const arm = (path: number) => {
    exchange();
    modify(left, { ...alternateTo(2, { altTimeout: 8 }, path), pathMigState: 'REARM' });
    modify(right, { ...alternateTo(1, { altTimeout: 8 }, path), pathMigState: 'REARM' });
    exchange();
    for (const side of sides) expect(query(side).pathMigState).toBe('ARMED');
  };

  let middles = 0;
  for (let i = 0; i < MIGRATIONS; i++) {
    const path = i & 1;
    arm(1 - path);
    for (const { events } of sides) events.length = 0;
    pair.sent.length = 0;
    // The path takes so many packets of both sides, and no more.
    let room = random.next() % 100;
    let isCut = false;
    pair.fault = (packet, _now, sgidIndex) => {
      if (sgidIndex !== path || room-- > 0) return [{ packet, delay: 0 }];
      isCut = true;
      return [];
    };
    for (const flow of flows) flow.begin(random.next);
    if (cause === 'modify') {
      while (!isCut) pair.run(20);
      for (const side of asking) modify(side, { pathMigState: 'MIGRATED' });
    }
    pair.run(10_000_000);
    for (const side of sides) {
      expect(side.events, `round ${i}`).toEqual([{ type: 'PATH_MIG', qpn: side.qp.qpn }]);
      expect(query(side).ahAttr?.grh.sgidIndex).toBe(1 - path);
    }
    const done = new Map(sides.map((side) => [side, side.poll()]));
    for (const flow of flows) {
      const requests = done.get(flow.side)!.filter((wc) => !isReceive(wc));
      flow.end(requests, done.get(flow.peer)!.filter(isReceive));
    }
    if (isCut) middles++;
    pair.fault = undefined;
  }
  return { bytes: MIGRATIONS * 3 * LENGTH, middles };
}

describe.each(['retries', 'modify'] as const)('by %s', (cause) => {
  test.each(['left', 'right', 'both'] as const)('75 MiB and 100 migrations, asked for by %s', (who) => {
    const { bytes, middles } = play(cause, who);
    expect(bytes).toBe(75 * 1024 * 1024);
    expect(middles).toBe(MIGRATIONS);
  });
});
