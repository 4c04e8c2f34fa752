/**
 * Two engines on a fast simulated wire: packets go from one's send batches into the other's receive batches through rings of
 * fixed slots, in virtual time, without an object for each. For what needs many queue pairs or very many messages; the
 * model can't take part, and nothing is recorded.
 */
import {
  Adapter,
  FRAGMENT_WORDS,
  Fragment,
  Icrc,
  NO_PEER,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import { createRandom, gidFromText, type Random, TWO_32 } from '@node-roce/wire';

export interface ExpressOptions {
  seed: number;
  /** Bytes of the longest packet, BTH through pad. */
  packetBytes: number;
  /** Packets that may be under way in one direction, a power of two; more are lost. */
  capacity: number;
  /** One way, µs. */
  delay: number;
  /** Packets that each link takes in one step; all, by default. */
  room?: number;
  /** Chances of each packet. */
  loss?: number;
  duplicate?: number;
  /** Overtaken by the next. */
  reorder?: number;
  /** Steps between two checks of the invariants; 1 checks after each. */
  checkEvery: number;
  batchPackets?: number;
  receiveBuffer?: number;
  credits?: boolean;
}

/** Packets under way in one direction, in the order in which they arrive. */
class Flights {
  readonly #mask: number;
  readonly #stride: number;
  readonly #slab: Uint8Array<ArrayBuffer>;
  readonly #lengths: Uint16Array;
  readonly #times: Float64Array;
  #head = 0;
  #tail = 0;

  constructor(capacity: number, stride: number) {
    this.#mask = capacity - 1;
    this.#stride = stride;
    this.#slab = new Uint8Array(capacity * stride);
    this.#lengths = new Uint16Array(capacity);
    this.#times = new Float64Array(capacity);
  }

  get count(): number {
    return this.#tail - this.#head;
  }

  /** When the next one arrives, µs; Infinity if none is under way. */
  get next(): number {
    return this.count === 0 ? Number.POSITIVE_INFINITY : this.#times[this.#head & this.#mask];
  }

  /** Takes a slot's packet. False without room. */
  push(batch: TxBatch, index: number, time: number): boolean {
    if (this.count > this.#mask) return false;
    const { slots, headers, fragments, regions } = batch;
    const w = index * TX_SLOT_WORDS;
    const at = this.#tail & this.#mask;
    const start = at * this.#stride;
    const header = slots[w + Tx.HEADER_OFFSET];
    const headerLength = slots[w + Tx.HEADER_LENGTH];
    const slab = this.#slab;
    for (let i = 0; i < headerLength; i++) slab[start + i] = headers[header + i];
    let end = start + headerLength;
    const first = slots[w + Tx.FRAGMENT_FIRST];
    for (let i = 0; i < slots[w + Tx.FRAGMENT_COUNT]; i++) {
      const f = (first + i) * FRAGMENT_WORDS;
      const view = regions.views[fragments[f + Fragment.REGION]] as Uint8Array;
      const offset = fragments[f + Fragment.OFFSET_HIGH] * TWO_32 + fragments[f + Fragment.OFFSET_LOW];
      const length = fragments[f + Fragment.LENGTH];
      if (length < 64) for (let j = 0; j < length; j++) slab[end + j] = view[offset + j];
      else slab.set(view.subarray(offset, offset + length), end);
      end += length;
    }
    for (let pad = slots[w + Tx.PAD]; pad > 0; pad--) slab[end++] = 0;
    this.#lengths[at] = end - start;
    this.#times[at] = time;
    this.#tail++;
    return true;
  }

  /** The last packet once more. */
  repeat(): void {
    if (this.count > this.#mask) return;
    this.#copy(this.#tail - 1, this.#tail);
    this.#tail++;
  }

  /** The last packet and the one before it change places. */
  swap(): void {
    if (this.count < 2 || this.count > this.#mask) return;
    const spare = this.#tail;
    this.#copy(spare - 1, spare);
    this.#copy(spare - 2, spare - 1);
    this.#copy(spare, spare - 2);
  }

  #copy(from: number, to: number): void {
    const [i, j] = [from & this.#mask, to & this.#mask];
    const stride = this.#stride;
    this.#slab.copyWithin(j * stride, i * stride, i * stride + this.#lengths[i]);
    this.#lengths[j] = this.#lengths[i];
    // Places in line keep their times.
    if (to === this.#tail) this.#times[j] = this.#times[i];
  }

  /** Fills the batch with packets that have arrived. */
  take(batch: RxBatch, now: number): number {
    let count = 0;
    let offset = 0;
    while (count < batch.capacity && this.#head < this.#tail) {
      const at = this.#head & this.#mask;
      const length = this.#lengths[at];
      if (this.#times[at] > now || offset + length > batch.slab.length) break;
      const start = at * this.#stride;
      if (length < 96) for (let i = 0; i < length; i++) batch.slab[offset + i] = this.#slab[start + i];
      else batch.slab.set(this.#slab.subarray(start, start + length), offset);
      const w = count * RX_SLOT_WORDS;
      batch.slots[w + Rx.OFFSET] = offset;
      batch.slots[w + Rx.LENGTH] = length;
      offset += (length + 7) & ~7;
      this.#head++;
      count++;
    }
    batch.count = count;
    return count;
  }
}

/** One of the two. */
export class ExpressHost {
  readonly adapter: Adapter;
  readonly gid: Uint8Array;
  readonly pd: number;
  readonly #doorbells: Ring;
  readonly #tx: TxBatch;
  readonly #rx = new RxBatch(512, 1024 * 1024);
  readonly #outgoing: Flights;
  readonly #incoming: Flights;
  readonly #options: ExpressOptions;
  readonly #random: Random;
  #taken = 0;
  #unchecked = 0;
  readonly counts = { sent: 0, lost: 0, duplicated: 0, reordered: 0, overflowed: 0 };

  constructor(number: number, options: ExpressOptions, outgoing: Flights, incoming: Flights) {
    this.gid = gidFromText(`10.0.0.${number}`);
    this.#options = options;
    this.#outgoing = outgoing;
    this.#incoming = incoming;
    this.#random = createRandom(options.seed * 2 + number);
    const { receiveBuffer, credits = false, batchPackets = 256 } = options;
    this.adapter = new Adapter({
      random: this.#random.next,
      peers: { add: () => 0, remove: () => {} },
      gids: [{ gid: this.gid, address: 'simulated', type: 'RoCE v2' }],
      activeMtu: 4096,
      credits,
      ...(receiveBuffer === undefined ? {} : { receiveBuffer }),
      throwBugs: true,
      onCompletionEvent: () => {},
      onAsyncEvent: () => {},
    });
    this.pd = this.adapter.allocPd();
    this.#doorbells = new Ring(this.adapter.doorbells);
    this.#tx = new TxBatch(this.adapter.regions, batchPackets);
    const peer = gidFromText(`10.0.0.${3 - number}`);
    for (let i = 0; i < this.#rx.capacity; i++) {
      this.#rx.sources.set(peer, i * 16);
      this.#rx.slots[i * RX_SLOT_WORDS + Rx.PEER] = NO_PEER;
      this.#rx.slots[i * RX_SLOT_WORDS + Rx.HOP_LIMIT] = 64;
      this.#rx.slots[i * RX_SLOT_WORDS + Rx.VERDICT] = Icrc.OK;
    }
  }

  ringDoorbell(value: number): void {
    const ring = this.#doorbells;
    const index = ring.producer;
    ring.words[ring.wordOf(index)] = value;
    ring.publish((index + 1) | 0);
  }

  /** Takes arrivals, runs timers, then sends: one turn of the run loop. */
  turn(now: number): void {
    this.adapter.clock[0] = now;
    while (this.#incoming.take(this.#rx, now) > 0) this.adapter.receive(this.#rx);
    this.adapter.advance();
    this.#transmit(now);
    if (++this.#unchecked >= this.#options.checkEvery) {
      this.#unchecked = 0;
      this.adapter.checkInvariants();
    }
  }

  /** A batch that the link does not take whole is kept; nothing else is added meanwhile. */
  #transmit(now: number): void {
    const batch = this.#tx;
    for (let { room = Number.POSITIVE_INFINITY } = this.#options; room > 0; ) {
      if (batch.count === 0 && this.adapter.transmit(batch) === 0) return;
      for (; this.#taken < batch.count && room > 0; this.#taken++, room--) {
        batch.slots[this.#taken * TX_SLOT_WORDS + Tx.STATUS] = 0;
        this.#send(batch, this.#taken, now);
      }
      if (this.#taken < batch.count) return;
      this.adapter.sent(batch);
      batch.clear();
      this.#taken = 0;
    }
  }

  #send(batch: TxBatch, index: number, now: number): void {
    const { loss = 0, duplicate = 0, reorder = 0, delay } = this.#options;
    const random = this.#random;
    this.counts.sent++;
    if (loss > 0 && random.chance(loss)) {
      this.counts.lost++;
      return;
    }
    if (!this.#outgoing.push(batch, index, now + delay)) {
      this.counts.overflowed++;
      return;
    }
    if (duplicate > 0 && random.chance(duplicate)) {
      this.counts.duplicated++;
      this.#outgoing.repeat();
    }
    if (reorder > 0 && random.chance(reorder)) {
      this.counts.reordered++;
      this.#outgoing.swap();
    }
  }

  /** Packets of a batch that was begun wait for the link. */
  get isBlocked(): boolean {
    return this.#tx.count > 0;
  }
}

/** Two engines on a wire without faults, in virtual time, for many queue pairs. */
export class Express {
  readonly hosts: readonly [ExpressHost, ExpressHost];
  readonly #flights: readonly [Flights, Flights];
  now = 0;

  constructor(options: ExpressOptions) {
    const make = () => new Flights(options.capacity, options.packetBytes);
    const [there, back] = [make(), make()];
    this.#flights = [there, back];
    this.hosts = [new ExpressHost(1, options, there, back), new ExpressHost(2, options, back, there)];
  }

  /** One turn of both hosts now. */
  turn(): void {
    for (const host of this.hosts) host.turn(this.now);
  }

  /** To the next arrival or timer, at least `least` µs on; false if there is none. */
  skip(least: number): boolean {
    const [a, b] = this.hosts;
    const next = Math.min(
      this.#flights[0].next,
      this.#flights[1].next,
      a.adapter.nextDeadline(),
      b.adapter.nextDeadline(),
    );
    this.now += least;
    if (next === Number.POSITIVE_INFINITY) return false;
    this.now = Math.max(this.now, next);
    return true;
  }
}
