/** Scatter/gather lists: the check of a whole list, and walking it for one packet at a time. */
import { FRAGMENT_WORDS, type TxBatch } from './batch.ts';
import type { Core } from './core.ts';
import type { QueuePair } from './qp.ts';
import { type Ring, SendWqe, SGE_WORDS, Sge } from './rings.ts';
import { scatter } from './scatter.ts';

const TWO_32 = 0x1_0000_0000;

/**
 * The bytes of a list, or −1 where an element is not wholly in a valid region of the PD
 * with the access asked for. An element of length 0 needs no key (ibv_post_send(3)).
 */
export function checkList(
  core: Core,
  pd: number,
  ring: Ring,
  first: number,
  count: number,
  access: number,
): number {
  let total = 0;
  for (let i = 0, w = first; i < count; i++, w += SGE_WORDS) {
    const words = ring.words;
    const length = words[w + Sge.LENGTH];
    if (length === 0) continue;
    const mr = core.memory.byLkey(words[w + Sge.LKEY]);
    if (!mr || mr.pd !== pd || (mr.access & access) !== access) return -1;
    if (mr.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], length) < 0) return -1;
    total += length;
  }
  return total;
}

/** Adds one fragment to the packet that is being made. */
export function addFragment(batch: TxBatch, region: number, offset: number, length: number): void {
  const f = batch.fragments;
  const w = batch.fragmentCount++ * FRAGMENT_WORDS;
  f[w] = region;
  f[w + 1] = offset;
  f[w + 2] = Math.floor(offset / TWO_32);
  f[w + 3] = length;
}

/**
 * Adds the fragments of the next `length` bytes of the send entry under the cursor, and moves the cursor
 * in its list. False where a region went away meanwhile.
 */
export function gather(core: Core, qp: QueuePair, batch: TxBatch, entry: number, length: number): boolean {
  const words = qp.sq.words;
  while (length > 0) {
    const w = entry + SendWqe.SGE + qp.gatherSge * SGE_WORDS;
    const left = words[w + Sge.LENGTH] - qp.gatherOffset;
    if (left <= 0) {
      qp.gatherSge++;
      qp.gatherOffset = 0;
      if (qp.gatherSge > qp.cap.maxSendSge) return false;
      continue;
    }
    const take = Math.min(left, length);
    const mr = core.memory.byLkey(words[w + Sge.LKEY]);
    if (!mr || mr.pd !== qp.pd) return false;
    const at = mr.locate(words[w + Sge.ADDRESS_HIGH], words[w + Sge.ADDRESS_LOW], words[w + Sge.LENGTH]);
    if (at < 0) return false;
    addFragment(batch, mr.region, at + qp.gatherOffset, take);
    qp.gatherOffset += take;
    length -= take;
  }
  return true;
}

/** Puts the gather cursor at byte `offset` of the entry's message. */
export function seekGather(qp: QueuePair, entry: number, offset: number): void {
  const words = qp.sq.words;
  qp.gatherSge = 0;
  while (qp.gatherSge < words[entry + SendWqe.SGE_COUNT]) {
    const length = words[entry + SendWqe.SGE + qp.gatherSge * SGE_WORDS + Sge.LENGTH];
    if (offset < length) break;
    offset -= length;
    qp.gatherSge++;
  }
  qp.gatherOffset = offset;
}

/** A response's payload into the list of the oldest send entry, at byte `offset`. */
export function scatterResponse(
  core: Core,
  qp: QueuePair,
  offset: number,
  source: number,
  length: number,
): number {
  const w = qp.sq.wordOf(qp.sqHead);
  const words = qp.sq.words;
  return scatter(core, qp.pd, words, w + SendWqe.SGE, words[w + SendWqe.SGE_COUNT], offset, source, length);
}
