/** Slots of a transmit batch, as the requester and the responder fill them. */
import { TWO_32 } from '@node-roce/wire';
import { FRAGMENT_WORDS, TX_HEADER_STRIDE, TX_SLOT_WORDS, Tx, type TxBatch } from './batch.ts';
import type { QpCounters } from './counters.ts';
import type { QpAttributes } from './qp/attributes.ts';

/** P_Key of a RoCE port: the default partition, full member. */
export const DEFAULT_PKEY = 0xffff;

/** The queue pair that a packet leaves from. */
export interface SlotSource {
  /** Its QPN, and above it the mark of its present life. */
  readonly slotTag: number;
  readonly attributes: QpAttributes;
  readonly counters: QpCounters;
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

/** Adds a fragment of `length` bytes for each of so many packets, one behind the other. */
export function addFragments(
  batch: TxBatch,
  region: number,
  offset: number,
  length: number,
  count: number,
): void {
  const f = batch.fragments;
  let w = batch.fragmentCount * FRAGMENT_WORDS;
  let at = offset;
  for (let i = 0; i < count; i++) {
    f[w] = region;
    f[w + 1] = at;
    f[w + 2] = Math.floor(at / TWO_32);
    f[w + 3] = length;
    w += FRAGMENT_WORDS;
    at += length;
  }
  batch.fragmentCount += count;
}

/** Fills the words of the slot whose header was just written; `entry` is the send entry of a request, the key of a READ response. */
export function finishSlot(
  source: SlotSource,
  batch: TxBatch,
  headerLength: number,
  firstFragment: number,
  payload: number,
  pad: number,
  entry = 0,
): void {
  const s = batch.slots;
  const w = batch.count * TX_SLOT_WORDS;
  const { peer, trafficClass, dataTrafficClass, sourcePort } = source.attributes;
  s[w + Tx.HEADER_OFFSET] = batch.count * TX_HEADER_STRIDE;
  s[w + Tx.HEADER_LENGTH] = headerLength;
  s[w + Tx.FRAGMENT_FIRST] = firstFragment;
  s[w + Tx.FRAGMENT_COUNT] = batch.fragmentCount - firstFragment;
  s[w + Tx.PAYLOAD_LENGTH] = payload;
  s[w + Tx.PAD] = pad;
  s[w + Tx.PEER] = peer;
  s[w + Tx.TRAFFIC_CLASS] = payload > 0 ? dataTrafficClass : trafficClass;
  s[w + Tx.SOURCE_PORT] = sourcePort;
  s[w + Tx.QPN] = source.slotTag;
  s[w + Tx.STATUS] = 0;
  s[w + Tx.ENTRY] = entry;
  s[w + Tx.RUN] = 1;
  batch.count++;
  source.counters.sentPackets++;
}

/** The slot that was finished last, which has one fragment, becomes a run: `more` packets of one fragment each, which are added already, follow. */
export function growRun(batch: TxBatch, more: number, counters: QpCounters): void {
  const first = batch.count - 1;
  const w = first * TX_SLOT_WORDS;
  batch.slots[w + Tx.FRAGMENT_COUNT] = 1;
  batch.slots[w + Tx.RUN] = more + 1;
  batch.lastRun = first;
  batch.count += more;
  counters.sentPackets += more;
}
