/**
 * READs of a responder that forgets the beginning of a READ when it is asked for a later part of it again, as rxe does
 * (docs/quirks.md), over a path that loses packets in both directions.
 */
import { BTH_BYTES, bthPsn, NakCode, Opcode, psnAdd, psnDiff, rethLength, rethVaLow } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, type PacketInit } from '../testing/by-hand.ts';
import type { Packet } from '../testing/pair.ts';

const MTU = 256;
const DELAY = 10;
const ADDRESS = 0x10_0000;
const READS = 40;
/** Five requests of 64 responses and one of 8; or one of 256 and one of 72. */
const RESPONSES = 328;
/** READs before the first loss, where those after it begin with large requests: until the window has room for two. */
const OPENING = 4;
const { RC_ACKNOWLEDGE, RC_RDMA_READ_RESPONSE_MIDDLE } = Opcode;
const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_LAST, RC_RDMA_READ_RESPONSE_ONLY } = Opcode;

/** A linear congruential generator: numbers from 0 up to 1. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** The responder: as many resources as were agreed on, used in turn; of each, from where on it serves. */
class Forgetful {
  #psn: number;
  #isNakSent = false;
  #next = 0;
  readonly #resources: { first: number; last: number; from: number; end: number }[] = [];
  readonly #limit: number;
  dropped = 0;

  constructor(psn: number, limit: number) {
    this.#psn = psn;
    this.#limit = limit;
  }

  /** Returns its answers to a request. */
  receive(request: Packet): PacketInit[] {
    const psn = bthPsn(request, 0);
    const from = rethVaLow(request, BTH_BYTES);
    const length = rethLength(request, BTH_BYTES);
    const ahead = psnDiff(psn, this.#psn);
    if (ahead > 0) {
      if (this.#isNakSent) return [];
      this.#isNakSent = true;
      return [{ opcode: RC_ACKNOWLEDGE, psn: this.#psn, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } }];
    }
    const last = psnAdd(psn, length / MTU - 1);
    if (ahead === 0) {
      this.#isNakSent = false;
      this.#resources[this.#next++ % this.#limit] = { first: psn, last, from, end: from + length };
      this.#psn = psnAdd(last, 1);
    } else {
      const resource = this.#resources.find(
        ({ first, last }) => psnDiff(psn, first) >= 0 && psnDiff(psn, last) <= 0,
      );
      if (!resource || from < resource.from || from + length > resource.end) {
        this.dropped++;
        return [];
      }
      resource.from = from;
    }
    return this.#responses(psn, from, length / MTU);
  }

  #responses(psn: number, from: number, count: number): PacketInit[] {
    return Array.from({ length: count }, (_, i) => {
      const [isFirst, isLast] = [i === 0, i === count - 1];
      const ends = isFirst ? RC_RDMA_READ_RESPONSE_FIRST : RC_RDMA_READ_RESPONSE_LAST;
      const edge = isFirst && isLast ? RC_RDMA_READ_RESPONSE_ONLY : ends;
      const opcode = isFirst || isLast ? edge : RC_RDMA_READ_RESPONSE_MIDDLE;
      const payload = new Uint8Array(MTU).fill(((from - ADDRESS) / MTU + i) % 251);
      return {
        opcode,
        psn: psnAdd(psn, i),
        ...(isFirst || isLast ? { aeth: { syndrome: 0x1f } } : {}),
        payload,
      };
    });
  }
}

interface RunOptions {
  loss: number;
  seed: number;
  maxRdAtomic: number;
  /** READs that are done before packets are lost. */
  opening?: number;
  receiveBuffer?: number;
}

/** READs of our requester's until all are done, or none is for a second. */
function run({ loss, seed, maxRdAtomic, opening = 0, receiveBuffer }: RunOptions) {
  const first = 0xff_f000;
  const attr = { sqPsn: first, pathMtu: MTU, timeout: 8, retryCnt: 7, maxRdAtomic };
  const hand = new ByHand(attr, receiveBuffer === undefined ? {} : { receiveBuffer });
  const { side } = hand;
  const bytes = new Uint8Array(new ArrayBuffer(RESPONSES * MTU));
  const mr = side.register(bytes.buffer);
  const peer = new Forgetful(first, maxRdAtomic);
  const chance = random(seed);
  const statuses: string[] = [];
  const isLost = () => statuses.length >= opening && chance() < loss;
  /** Packets on their way, by the time that they arrive at. */
  let requests: [at: number, packet: Packet][] = [];
  let responses: [at: number, packet: PacketInit][] = [];
  let wrong = 0;
  let large = 0;
  let posted = 0;
  for (let idle = 0; statuses.length < READS && idle < 1_000_000; idle++) {
    while (posted < READS && posted - statuses.length < 2) {
      const remote = { addr: BigInt(ADDRESS), rkey: 7 };
      side.post({ opcode: 'RDMA_READ', sge: [{ mr, length: RESPONSES * MTU }], remote });
      posted++;
    }
    for (const packet of hand.run(1)) {
      if (rethLength(packet, BTH_BYTES) > 64 * MTU) large++;
      if (!isLost()) requests.push([hand.now + DELAY, packet]);
    }
    for (const [at, packet] of requests) {
      if (at > hand.now) break;
      for (const answer of peer.receive(packet)) if (!isLost()) responses.push([hand.now + DELAY, answer]);
    }
    requests = requests.filter(([at]) => at > hand.now);
    for (const [at, packet] of responses) if (at <= hand.now) hand.put(packet);
    responses = responses.filter(([at]) => at > hand.now);
    for (const { status } of side.poll()) {
      statuses.push(status);
      idle = 0;
      for (let i = 0; i < RESPONSES; i++) if (bytes[i * MTU] !== i % 251) wrong++;
    }
  }
  return { statuses, wrong, large, dropped: peer.dropped, counters: side.adapter.counters() };
}

describe.each([0.01, 0.05, 0.2])('%d lost', (loss) => {
  test.each([1, 2, 4, 16])('all READs are served, and no request is dropped: %i at a time', (maxRdAtomic) => {
    for (let seed = 1; seed <= 3; seed++) {
      const { statuses, wrong, dropped, counters } = run({ loss, seed, maxRdAtomic });
      expect(statuses).toEqual(Array(READS).fill('SUCCESS'));
      expect([wrong, dropped]).toEqual([0, 0]);
      expect(counters.impliedNakSeqErr).toBeGreaterThan(0);
    }
  });

  // Each has its losses in READs that were begun with large requests; later ones are split into small ones.
  test.each([1, 2, 4, 16])('so are READs with large requests: %i at a time', (maxRdAtomic) => {
    for (let seed = 1; seed <= 10; seed++) {
      const options = { loss, seed, maxRdAtomic, opening: OPENING, receiveBuffer: 1 << 20 };
      const { statuses, wrong, large, dropped } = run(options);
      expect(statuses).toEqual(Array(READS).fill('SUCCESS'));
      expect([wrong, dropped]).toEqual([0, 0]);
      expect(large).toBeGreaterThan(0);
    }
  });
});
