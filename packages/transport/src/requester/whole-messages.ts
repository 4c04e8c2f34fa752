/** Messages of one packet, a run of them at a time: most of what a program sends in small pieces. */
import {
  BTH_ACK_REQ,
  BTH_BYTES,
  BTH_PAD_SHIFT,
  BthFlags,
  psnAdd,
  RETH_BYTES,
  TWO_32,
  writeBth,
  writeReth,
} from '@node-roce/wire';
import { FRAGMENT_WORDS, TX_HEADER_STRIDE, type TxBatch } from '../batch.ts';
import { SendFlags, WrOpcode } from '../constants.ts';
import type { Context } from '../context.ts';
import { SendWqe, Sge } from '../entry-words.ts';
import type { Owner } from '../qp/owner.ts';
import type { SendQueue } from '../qp/send-queue.ts';
import type { MemoryRegion } from '../region.ts';
import { indexDiff } from '../rings.ts';
import { addFragment, DEFAULT_PKEY, finishSlot, growRun } from '../slots.ts';
import { Wire, WR_OPCODES, type WrOpcodeRow } from '../wr-opcodes.ts';
import type { Credits } from './credits.ts';
import type { SenderParts } from './parts.ts';

/** Whether a message is its data and nothing else; what is posted may have a number that no opcode has. */
function isPlain(row: WrOpcodeRow | undefined, service: number): row is WrOpcodeRow {
  if (row === undefined || (row.services & service) === 0 || row.immediate || row.invalidate) return false;
  return row.wire === Wire.SEND || row.wire === Wire.WRITE;
}

/** Bits that are equal in the SENDs of a run: the operation, whether the data is inline, and what it asks for. */
const ALIKE = 0xff | ((SendFlags.INLINE | SendFlags.FENCE | SendFlags.SOLICITED) << 8);

/**
 * Adds the packets of the next entries to the slot that was finished last, as far as they differ from its SEND in their data alone; up to `most`. Each word,
 * which the program may rewrite meanwhile, is read once.
 * @returns how many
 */
function addAlike(
  { memory }: Context,
  owner: Owner,
  queue: SendQueue,
  batch: TxBatch,
  opcodeFlags: number,
  length: number,
  most: number,
): number {
  const { words, started } = queue;
  const { fragments } = batch;
  const alike = opcodeFlags & ALIKE;
  const bytes = length | 0;
  const isInline = (opcodeFlags & (SendFlags.INLINE << 8)) !== 0;
  const count = Math.min(most, batch.room);
  const { sqRegion, pd } = owner;
  let f = batch.fragmentCount * FRAGMENT_WORDS;
  // Of the region that the entry before has its data in.
  let key = 0;
  let found: MemoryRegion | undefined;
  let region = 0;
  let startHigh = 0;
  let startLow = 0;
  let start = 0;
  let last = -1;
  let added = 0;
  for (; added < count; added++) {
    const w = queue.wordOf((started + added) | 0);
    if ((words[w + SendWqe.OPCODE_FLAGS] & ALIKE) !== alike || (words[w + SendWqe.LENGTH] | 0) !== bytes)
      break;
    const s = w + SendWqe.SGE;
    let at = s * 4;
    if (isInline) region = sqRegion;
    else {
      if (words[w + SendWqe.SGE_COUNT] !== 1 || (words[s + Sge.LENGTH] | 0) !== bytes) break;
      const lkey = words[s + Sge.LKEY] | 0;
      if (lkey !== key || found === undefined) {
        found = memory.byLkey(lkey);
        if (found === undefined || found.pd !== pd || found.reach !== undefined || found.isNull) break;
        if (found.view.length < found.offset + found.length) break;
        key = lkey;
        region = found.region;
        startHigh = found.startHigh | 0;
        startLow = found.startLow | 0;
        start = found.offset | 0;
        last = found.isNear ? (found.length - bytes) | 0 : -1;
      }
      const high = words[s + Sge.ADDRESS_HIGH] | 0;
      const low = words[s + Sge.ADDRESS_LOW] | 0;
      const delta = (low - startLow) | 0;
      if (high === startHigh && delta >= 0 && delta <= last) at = (start + delta) | 0;
      else at = found.locate(high, low, bytes);
      if (at < 0) break;
    }
    fragments[f] = region;
    fragments[f + 1] = at;
    fragments[f + 2] = at < TWO_32 ? 0 : Math.floor(at / TWO_32);
    fragments[f + 3] = bytes;
    f += FRAGMENT_WORDS;
  }
  if (added === 0) return 0;
  batch.fragmentCount += added;
  growRun(batch, added, owner.counters);
  return added;
}

/**
 * Does for each message what `starter.ts` and `packets.ts` do, looks at each word once, and makes none of their calls.
 *
 * Only for plain messages: SEND or WRITE without immediate data or invalidation; no fence; 1 byte to one path MTU, inline or in one element
 * that lies in a region; with credits, or the one that may leave without. The first other one ends the run and is left as it was: the common path takes it, and finds its error.
 */
export class WholeMessages {
  readonly #parts: SenderParts;
  readonly #credits: Credits;

  constructor(parts: SenderParts, credits: Credits) {
    this.#parts = parts;
    this.#credits = credits;
  }

  /**
   * Starts up to `most` of the entries that wait, adds their packets, and moves the cursor, which is at the first of them.
   * @returns how many
   */
  add(batch: TxBatch, most: number): number {
    const { context, owner, flight } = this.#parts;
    const { queue } = flight;
    const credits = this.#credits;
    const { limited } = credits;
    const { memory } = context;
    const { words, started } = queue;
    const { cursor } = flight;
    const { pathMtu, destQpn, migReq } = owner.attributes;
    const { maxSendSge, maxInlineData } = owner.cap;
    const longest = Math.min(pathMtu, context.limits.maxMessageSize);
    const askAck = owner.reliable ? BTH_ACK_REQ : 0;
    const count = Math.min(most, indexDiff(queue.posted, started));
    let { psn } = cursor;
    let row: WrOpcodeRow | undefined;
    let mr: MemoryRegion | undefined;
    let mrKey = -1;
    let added = 0;
    while (added < count && !batch.full) {
      const entry = (started + added) | 0;
      const w = queue.wordOf(entry);
      const opcodeFlags = words[w + SendWqe.OPCODE_FLAGS];
      const flags = opcodeFlags >>> 8;
      const own = WR_OPCODES[opcodeFlags & 0xff];
      if (row === undefined || own !== row) {
        if (!isPlain(own, owner.service)) break;
        row = own;
      }
      const length = words[w + SendWqe.LENGTH];
      if (length === 0 || length > longest || (flags & SendFlags.FENCE) !== 0) break;
      if (limited && row.consumesReceive && credits.exhausted && (added > 0 || !flight.isOver)) break;
      const fragments = batch.fragmentCount;
      if ((flags & SendFlags.INLINE) !== 0) {
        if (length > maxInlineData) break;
        addFragment(batch, owner.sqRegion, (w + SendWqe.SGE) * 4, length);
      } else {
        const s = w + SendWqe.SGE;
        if (words[w + SendWqe.SGE_COUNT] !== 1 || maxSendSge === 0 || words[s + Sge.LENGTH] !== length) break;
        const lkey = words[s + Sge.LKEY];
        if (lkey !== mrKey) mr = memory.byLkey(lkey | 0);
        mrKey = lkey;
        if (mr === undefined || mr.pd !== owner.pd) break;
        // As int32, which is never boxed: the call is too far in to be inlined.
        const at = mr.locate(words[s + Sge.ADDRESS_HIGH] | 0, words[s + Sge.ADDRESS_LOW] | 0, length);
        if (at < 0 || (mr.reach && !context.regions.fetched.pull(mr.reach, at, length))) break;
        addFragment(batch, mr.region, at, length);
      }
      const base = batch.count * TX_HEADER_STRIDE;
      let headerLength = BTH_BYTES;
      if (row.remote) {
        const high = words[w + SendWqe.REMOTE_ADDRESS_HIGH] | 0;
        const low = words[w + SendWqe.REMOTE_ADDRESS_LOW] | 0;
        writeReth(batch.headers, base + BTH_BYTES, high, low, words[w + SendWqe.RKEY] | 0, length);
        headerLength += RETH_BYTES;
      }
      const pad = -length & 3;
      const solicited = (flags & SendFlags.SOLICITED) !== 0 && row.consumesReceive;
      const bits = migReq | (pad << BTH_PAD_SHIFT) | (solicited ? BthFlags.SOLICITED : 0);
      writeBth(batch.headers, base, owner.transport | row.only, bits, DEFAULT_PKEY, destQpn, askAck | psn);
      finishSlot(owner, batch, headerLength, fragments, length, pad, entry);
      queue.start(psn, 1, row);
      if (limited) credits.count(1);
      psn = psnAdd(psn, 1);
      added++;
      if (added === count || !batch.runs || row.opcode !== WrOpcode.SEND) continue;
      const alikeMost = limited ? Math.min(count - added, credits.left) : count - added;
      const more = addAlike(context, owner, queue, batch, opcodeFlags, length, alikeMost);
      queue.startSends(psn, more, row);
      if (limited) credits.count(more);
      psn = psnAdd(psn, more);
      added += more;
    }
    if (added === 0) return 0;
    cursor.place(queue.started, psn);
    flight.advanced();
    return added;
  }
}
