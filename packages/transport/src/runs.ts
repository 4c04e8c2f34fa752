/** Runs of received packets (`Rx.RUN`), for links in JavaScript: the addon's receiver marks its own. */
import { bthPsn, psnAdd } from '@node-roce/wire';
import { Icrc, RX_SLOT_WORDS, Rx, type RxBatch } from './batch.ts';

/** Bytes of a BTH before the PSN, but for the reserved one: in a run all are equal. */
const HEAD_BYTES = 9;

/** Words of a slot that are equal in a run. */
const EQUAL = [Rx.LENGTH, Rx.PEER, Rx.LOCAL, Rx.TRAFFIC_CLASS, Rx.HOP_LIMIT, Rx.VERDICT, Rx.SOURCE_PORT];

/** Whether the packet in the slot behind `index` goes on with a run. */
function goesOn({ slots, slab, sourceWords }: RxBatch, index: number): boolean {
  const w = index * RX_SLOT_WORDS;
  const next = w + RX_SLOT_WORDS;
  for (const word of EQUAL) if (slots[w + word] !== slots[next + word]) return false;
  for (let i = index * 4; i < index * 4 + 4; i++) if (sourceWords[i] !== sourceWords[i + 4]) return false;
  if (slots[w + Rx.LENGTH] < HEAD_BYTES + 3) return false;
  const at = slots[w + Rx.OFFSET];
  const to = slots[next + Rx.OFFSET];
  for (let i = 0; i < HEAD_BYTES; i++) if (slab[at + i] !== slab[to + i]) return false;
  return bthPsn(slab, to) === psnAdd(bthPsn(slab, at), 1);
}

/** Marks the runs of a batch whose slots are written. */
export function markRuns(batch: RxBatch): void {
  const { slots, count } = batch;
  let first = 0;
  let step = 0;
  for (let i = 0; i < count; i++) slots[i * RX_SLOT_WORDS + Rx.RUN] = 1;
  for (let i = 0; i + 1 < count; i++) {
    const w = i * RX_SLOT_WORDS;
    const apart = slots[w + RX_SLOT_WORDS + Rx.OFFSET] - slots[w + Rx.OFFSET];
    if (slots[w + Rx.VERDICT] === Icrc.OK && (first === i || apart === step) && goesOn(batch, i)) {
      slots[first * RX_SLOT_WORDS + Rx.RUN]++;
      step = apart;
    } else first = i + 1;
  }
}
