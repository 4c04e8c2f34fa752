/**
 * A link that applies faults to the packets of another one: loss alone and in bursts, duplicates, corruption, reordering,
 * delay, a rate with a queue and ECN marks.
 * The faults depend on the seed, the order of the packets and the clock alone, so a run in virtual
 * time can be repeated to the last packet.
 *
 * Every packet is copied: what is held back leaves with the bytes it had when it was sent.
 */
import {
  EFAULT,
  Fragment,
  gatherSlot,
  Icrc,
  isMemoryGone,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_HEADER_STRIDE,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import { ICRC_BYTES } from '@node-roce/wire';
import { checkFaultOptions, type FaultOptions, FaultPath, type HeldPacket } from './fault-path.ts';
import type { PacketHandling } from './impairment.ts';
import type { Link } from './link.ts';
import { LinkWrapper } from './wrapper.ts';

/** Packets handed to the inner link at once, and the bytes that each may have. */
const STAGED = 64;
const STAGE_STRIDE = 8192;

/** A link that impairs the packets of the link inside it; the same seed gives the same faults. */
export class FaultLink extends LinkWrapper {
  readonly #inbound: FaultPath;
  readonly #outbound: FaultPath;
  readonly #now: () => number;
  readonly #rx = new RxBatch(512, 8 * 1024 * 1024);
  /** Packets that are on their way to the inner link, and their payload. */
  readonly #stage: Uint8Array;
  readonly #tx: TxBatch;
  #taken = 0;
  #wantsWrite = false;

  /**
   * @param now microseconds; the same clock as the run loop's
   * @throws RoceError (EINVAL) for a probability outside of 0 … 1 or a negative time
   */
  constructor(inner: Link, options: FaultOptions, now: () => number = () => performance.now() * 1000) {
    super(inner);
    checkFaultOptions(options);
    const { seed = 1, direction = 'both' } = options;
    this.#now = now;
    this.#inbound = new FaultPath(direction === 'outbound' ? {} : options, seed, INBOUND);
    this.#outbound = new FaultPath(direction === 'inbound' ? {} : options, seed ^ 0x5bd1_e995, OUTBOUND);
    const regions = new RegionTable();
    this.#stage = new Uint8Array(STAGED * STAGE_STRIDE);
    regions.add(this.#stage);
    this.#tx = new TxBatch(regions, STAGED);
  }

  get kind(): string {
    return `faults(${this.inner.kind})`;
  }

  override get limitations(): readonly string[] {
    return [...this.inner.limitations, 'Packets are lost or spoilt on purpose.'];
  }

  /** None: packets that are held back do not stay where they arrived. */
  override get slab(): undefined {
    return undefined;
  }

  /** Takes everything: what the inner link then has no room for waits here, what it refuses is lost. */
  override send(batch: TxBatch, from: number): number {
    const now = this.#now();
    for (let i = from; i < batch.count; i++) {
      const w = i * TX_SLOT_WORDS;
      batch.slots[w + Tx.STATUS] = isMemoryGone(batch, i) ? EFAULT : 0;
      if (batch.slots[w + Tx.STATUS] !== 0) continue;
      const slot = batch.slots.slice(w, w + TX_SLOT_WORDS);
      this.#outbound.offer({ bytes: gatherSlot(batch, i), slot, source: undefined }, now);
    }
    this.#sendDue(now);
    return batch.count;
  }

  /** Sends the packets that are due, as long as there is room. */
  #sendDue(now: number): void {
    const tx = this.#tx;
    for (;;) {
      if (tx.count === 0) this.#fill(now);
      if (tx.count === 0) break;
      this.#taken = this.inner.send(tx, this.#taken);
      if (this.#taken < tx.count) break;
      tx.clear();
      this.#taken = 0;
    }
    this.#wantWrite(tx.count > 0);
  }

  #wantWrite(on: boolean): void {
    if (on !== this.#wantsWrite) this.inner.wantWrite(on);
    this.#wantsWrite = on;
  }

  #fill(now: number): void {
    const tx = this.#tx;
    while (tx.count < STAGED) {
      const packet = this.#outbound.take(now);
      if (!packet) return;
      const i = tx.count++;
      const w = i * TX_SLOT_WORDS;
      tx.slots.set(packet.slot, w);
      const header = packet.slot[Tx.HEADER_LENGTH];
      tx.headers.set(packet.bytes.subarray(0, header), i * TX_HEADER_STRIDE);
      this.#stage.set(packet.bytes.subarray(header), i * STAGE_STRIDE);
      tx.slots[w + Tx.HEADER_OFFSET] = i * TX_HEADER_STRIDE;
      tx.slots[w + Tx.FRAGMENT_FIRST] = tx.fragmentCount;
      tx.slots[w + Tx.FRAGMENT_COUNT] = 1;
      const f = tx.fragmentCount++ * 4;
      tx.fragments[f + Fragment.REGION] = 0;
      tx.fragments[f + Fragment.OFFSET_LOW] = i * STAGE_STRIDE;
      tx.fragments[f + Fragment.OFFSET_HIGH] = 0;
      tx.fragments[f + Fragment.LENGTH] = packet.slot[Tx.PAYLOAD_LENGTH];
    }
  }

  override receive(batch: RxBatch): number {
    const now = this.#now();
    const rx = this.#rx;
    this.#sendDue(now);
    for (let i = 0, count = this.inner.receive(rx); i < count; i++) {
      const w = i * RX_SLOT_WORDS;
      const start = rx.slots[w + Rx.OFFSET];
      const packet: HeldPacket = {
        bytes: rx.slab.slice(start, start + rx.slots[w + Rx.LENGTH] + ICRC_BYTES),
        slot: single(rx.slots.slice(w, w + RX_SLOT_WORDS)),
        source: rx.sources.slice(i * 16, i * 16 + 16),
      };
      this.#inbound.offer(packet, now);
    }
    let offset = 0;
    let count = 0;
    while (count < batch.capacity) {
      const next = this.#inbound.peek(now);
      if (!next || offset + next.bytes.length > batch.slab.length) break;
      this.#inbound.take(now);
      batch.slab.set(next.bytes, offset);
      const w = count * RX_SLOT_WORDS;
      batch.slots.set(next.slot, w);
      batch.slots[w + Rx.OFFSET] = offset;
      if (next.source) batch.sources.set(next.source, count * 16);
      offset += next.bytes.length;
      count++;
    }
    batch.count = count;
    return count;
  }

  override setDeadline(microsecondsFromNow: number): void {
    const held = Math.min(this.#inbound.next, this.#outbound.next) - this.#now();
    this.inner.setDeadline(Math.max(0, Math.min(microsecondsFromNow, held)));
  }

  override wantWrite(): void {} // Senders never have to wait here.

  override stats(): Record<string, number> {
    const counts: Record<string, number> = { ...this.inner.stats() };
    for (const [name, path] of [
      ['inbound', this.#inbound],
      ['outbound', this.#outbound],
    ] as const) {
      for (const [fault, count] of Object.entries(path.counts)) counts[`${name}.${fault}`] = count;
    }
    return counts;
  }
}

/** A slot that begins no run: the packets of one part here. */
function single(slot: Uint32Array): Uint32Array {
  slot[Rx.RUN] = 0;
  return slot;
}

/** Packets that came in: a damaged one has a bit turned over, and is what its ICRC would show it to be. */
const INBOUND: PacketHandling<HeldPacket> = {
  length: ({ slot }) => slot[Rx.LENGTH],
  trafficClass: ({ slot }) => slot[Rx.TRAFFIC_CLASS],
  withTrafficClass: (packet, trafficClass) => withWord(packet, Rx.TRAFFIC_CLASS, trafficClass),
  damaged: (packet, random) => {
    const bytes = packet.bytes.slice();
    bytes[random.between(0, packet.slot[Rx.LENGTH] - 1)] ^= 1 << random.between(0, 7);
    return { ...withWord(packet, Rx.VERDICT, Icrc.BAD), bytes };
  },
};

/** Packets that go out: a damaged one is lost, as its receiver would drop it. */
const OUTBOUND: PacketHandling<HeldPacket> = {
  length: ({ bytes }) => bytes.length,
  trafficClass: ({ slot }) => slot[Tx.TRAFFIC_CLASS],
  withTrafficClass: (packet, trafficClass) => withWord(packet, Tx.TRAFFIC_CLASS, trafficClass),
  damaged: () => undefined,
};

function withWord(packet: HeldPacket, word: number, value: number): HeldPacket {
  const slot = packet.slot.slice();
  slot[word] = value;
  return { ...packet, slot };
}
