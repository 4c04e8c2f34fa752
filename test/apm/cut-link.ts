/** A path that is cut. */
import { LinkWrapper } from '@node-roce/link';
import { Icrc, RX_SLOT_WORDS, Rx, type RxBatch } from '@node-roce/transport';

/** Takes nothing any more of what comes to the first address, once it is cut. */
export class CutLink extends LinkWrapper {
  cut = false;

  get kind(): string {
    return `cut(${this.inner.kind})`;
  }

  override receive(batch: RxBatch, time?: Float64Array): number {
    const count = this.inner.receive(batch, time);
    for (let i = 0; this.cut && i < batch.count; i++) {
      const w = i * RX_SLOT_WORDS;
      if (batch.slots[w + Rx.LOCAL] === 0) batch.slots[w + Rx.VERDICT] = Icrc.BAD;
    }
    return count;
  }
}
