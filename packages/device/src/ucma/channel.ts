/** Event channels: descriptors of /dev/infiniband/rdma_cm that programs have. */
import { randomBytes } from 'node:crypto';

/** An id or a group, which counts the events that its program has taken. */
export interface EventOwner {
  reported: number;
}

interface Waiting {
  /** The event counts as this one's: the listener's, of a request. */
  owner: EventOwner;
  /** The event goes with this one, too: the id of a request. */
  about: EventOwner;
  bytes: Buffer;
}

/**
 * A queue of events. The program's descriptor has a byte to read while the queue is not empty: the device writes the byte with the first
 * event, and the library reads it once a reply reports that the queue has become empty (`owed`).
 */
export class Channel {
  /** Names the channel in commands. */
  readonly token = randomBytes(16);
  readonly #signal: () => void;
  #queue: Waiting[] = [];
  #owed = 0;

  /** @param signal writes a byte to the descriptor */
  constructor(signal: () => void) {
    this.#signal = signal;
  }

  push(event: Waiting): void {
    this.#queue.push(event);
    if (this.#queue.length === 1) this.#signal();
  }

  /** The oldest event, which its owner counts from now on. */
  take(): Buffer | undefined {
    const event = this.#queue.shift();
    if (!event) return undefined;
    event.owner.reported++;
    if (this.#queue.length === 0) this.#owed++;
    return event.bytes;
  }

  /** Takes back the events of an owner that is destroyed, and returns what else they were about. */
  drop(owner: EventOwner): EventOwner[] {
    const gone = this.#remove((event) => event.owner === owner || event.about === owner);
    return gone.map(({ about }) => about).filter((about) => about !== owner);
  }

  /** The events of an owner go to another channel with it. */
  move(owner: EventOwner, to: Channel): void {
    for (const event of this.#remove((one) => one.owner === owner)) to.push(event);
  }

  /** Bytes that the library has to read from the descriptor. */
  owed(): number {
    const owed = this.#owed;
    this.#owed = 0;
    return owed;
  }

  #remove(isGone: (event: Waiting) => boolean): Waiting[] {
    const before = this.#queue;
    const gone = before.filter(isGone);
    this.#queue = before.filter((event) => !isGone(event));
    if (gone.length > 0 && this.#queue.length === 0) this.#owed++;
    return gone;
  }
}
