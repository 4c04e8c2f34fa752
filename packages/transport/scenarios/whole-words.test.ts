/** Words that another thread polls while a peer changes them: it sees each value whole. */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { encodeAtomicEth, Opcode, opcodeInfo } from '@node-roce/wire';
import { expect, test } from 'vitest';
import type { Context } from '../src/context.ts';
import type { InboundPacket } from '../src/inbound.ts';
import { COPY_WORDS, copyBatch, RegionTable } from '../src/index.ts';
import { AtomicResult } from '../src/responder/execute.ts';
import type { RemoteTarget } from '../src/responder/remote-target.ts';

const ONES = 0xffff_ffff_ffff_ffffn;

/** Reads the word at byte 8 of `memory`. `flags`: end, rounds, words that were neither 0 nor all ones. */
const POLLER = `
  const { workerData: { memory, flags } } = require('node:worker_threads');
  const words = new BigUint64Array(memory);
  const [END, ROUNDS, TORN] = [0, 1, 2];
  function look() {
    let torn = 0;
    for (let i = 0; i < 10_000; i++) {
      const word = words[1];
      if (word !== 0n && word !== ${ONES}n) torn++;
    }
    return torn;
  }
  do {
    Atomics.add(flags, TORN, look());
    Atomics.add(flags, ROUNDS, 1);
  } while (!Atomics.load(flags, END));
`;

/** Calls `change` while another thread polls the word at byte 8: how often that was torn, and its last value. */
async function polled(change: (regions: RegionTable, region: number, round: number) => void) {
  const memory = new SharedArrayBuffer(24);
  const regions = new RegionTable();
  const region = regions.add(new Uint8Array(memory));
  const flags = new Int32Array(new SharedArrayBuffer(12));
  const poller = new Worker(POLLER, { eval: true, workerData: { memory, flags } });
  try {
    await once(poller, 'online');
    while (Atomics.load(flags, 1) === 0) await new Promise(setImmediate);
    for (let round = 0; round < 600_000; round++) change(regions, region, round);
  } finally {
    Atomics.store(flags, 0, 1);
    await once(poller, 'exit');
  }
  return { torn: Atomics.load(flags, 2), value: new BigUint64Array(memory)[1] };
}

/** Executes two atomics in turn. */
function inTurn(opcode: number, ...operands: { swapAdd: bigint; compare: bigint }[]) {
  const slab = new Uint8Array(128);
  const info = opcodeInfo(opcode)!;
  for (const [i, { swapAdd, compare }] of operands.entries())
    encodeAtomicEth(slab, i * 64 + info.offsets.atomicEth, { va: 0n, rkey: 0, swapAdd, compare });
  const result = new AtomicResult();
  const packets = [0, 64].map((at) => ({ info, slab, at }) as InboundPacket);
  return (regions: RegionTable, region: number, round: number) => {
    const context = { regions, flushCopies: () => {} } as Context;
    const target = { region: { region, view: regions.views[region] }, offset: 8 } as unknown as RemoteTarget;
    result.execute(context, target, packets[round & 1]);
  };
}

const EXPECTED = { torn: 0, value: 0n };

test('compare-and-swap', async () => {
  const operands = [
    { compare: 0n, swapAdd: ONES },
    { compare: ONES, swapAdd: 0n },
  ];
  expect(await polled(inTurn(Opcode.RC_COMPARE_SWAP, ...operands))).toEqual(EXPECTED);
});

test('fetch-and-add', async () => {
  const operands = [
    { compare: 0n, swapAdd: ONES },
    { compare: 0n, swapAdd: 1n },
  ];
  expect(await polled(inTurn(Opcode.RC_FETCH_ADD, ...operands))).toEqual(EXPECTED);
});

test('a WRITE of eight bytes', async () => {
  // Behind headers, so not aligned.
  const slab = new Uint8Array(32).fill(0xff, 0, 13);
  const list = new Uint32Array(COPY_WORDS);
  const change = (regions: RegionTable, region: number, round: number) => {
    list.set([round & 1 ? 13 : 3, region, 8, 0, 8]);
    copyBatch(slab, regions, list, 1);
  };
  expect(await polled(change)).toEqual(EXPECTED);
});
