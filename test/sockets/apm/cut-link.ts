/** A path that is cut. */
import { LinkWrapper } from '@node-roce/link';
import { Icrc, RX_SLOT_WORDS, Rx, type RxBatch } from '@node-roce/transport';

/** Once it is cut, drops all packets to the first address. */
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
