/** The WRITEs of one connection that are under way, and those who wait for room among them. */
import type { QueuePair } from '@node-roce/verbs-api';
import type { Outbound, Piece } from './outbound.ts';
import { MAX_CONTROLS, type Parts } from './parts.ts';
import { type ConnectionData, encodeTarget, immediate, Op, SGE_BYTES, type Target } from './wire.ts';

/** Where a WRITE goes, and what it takes along. */
type WriteArguments = Parameters<QueuePair['write']>;

/** What becomes of WRITEs. */
interface Outcomes {
  /** A control message has completed: the next one may go. */
  onControl(): void;
  /** A WRITE has failed. Returns what those report who wait for it. */
  onFailure(error: unknown): unknown;
}

/** Data and control messages on their way to the peer. They are posted, and complete, in order. */
export class Sending {
  readonly #parts: Pick<Parts, 'qp' | 'outbox'>;
  /** WRITEs under way, but for control messages, at most. */
  readonly #queue: number;
  /** The place of the first announcement in `outbox`, behind the bytes. */
  readonly #announcements: number;
  readonly #outcomes: Outcomes;
  #outbound: Outbound | undefined;
  #peer: ConnectionData | undefined;
  #pending = 0;
  #controls = 0;
  /** The announcement's place in `outbox`, and in the peer's list. */
  #slot = 0;
  #entry = 1;
  /** Those who wait for bytes, credits, buffers or completions. */
  #waiters: (() => void)[] = [];

  constructor(
    parts: Pick<Parts, 'qp' | 'outbox'>,
    { queue, sendBuffer }: { queue: number; sendBuffer: number },
    outcomes: Outcomes,
  ) {
    this.#parts = parts;
    this.#queue = queue;
    this.#announcements = sendBuffer;
    this.#outcomes = outcomes;
  }

  /** The peer is known from now on. */
  begin(peer: ConnectionData, outbound: Outbound): void {
    this.#peer = peer;
    this.#outbound = outbound;
    this.#entry = 1 % peer.sgl.length;
  }

  /** Bytes of the stream that may go now in one message; 0: wait for the next event. */
  get room(): number {
    return this.#pending < this.#queue && this.#outbound ? this.#outbound.room : 0;
  }

  /** Bytes that may go now in one WRITE to memory that the peer has mapped; 0: wait for the next event. */
  get free(): number {
    return this.#pending < this.#queue && this.#outbound ? this.#outbound.free : 0;
  }

  /** Whether so many bytes may go now as a message that takes a receive of the peer. */
  hasRoomFor(bytes: number): boolean {
    return this.free >= bytes && this.#outbound!.hasCredit;
  }

  /** Whether the peer's adapter has not acknowledged all bytes yet. */
  get isUnderWay(): boolean {
    return this.#pending > 0;
  }

  /** Whether a control message may go now. */
  get mayControl(): boolean {
    return this.#controls < MAX_CONTROLS;
  }

  /** Sends bytes of the stream, `room` at most. */
  stream(bytes: Uint8Array): void {
    void this.#write(this.#outbound!.place(bytes), immediate(Op.DATA, bytes.length));
  }

  /** Sends the entry of a mapping, for which there is room. Resolves when the peer's adapter has it. */
  mapping(entry: Uint8Array, addr: bigint, key: number, place: number): Promise<void> {
    return this.#write(this.#outbound!.placeMessage(entry, addr, key), immediate(Op.IOMAP, place));
  }

  /** Writes into the peer's memory, `free` bytes at most, without a message. Resolves when the peer's adapter has them. */
  direct(bytes: Uint8Array, addr: bigint, key: number): Promise<void> {
    return this.#write(this.#outbound!.placeAt(bytes, addr, key));
  }

  #write({ ranges, length, addr, rkey }: Piece, immData?: number): Promise<void> {
    const { outbox } = this.#parts;
    const list = ranges.map((range) => ({ mr: outbox, ...range }));
    this.#pending++;
    return this.#post([list, { addr, rkey }, immData === undefined ? {} : { immData }], () => {
      this.#pending--;
      this.#outbound!.completed(length);
    });
  }

  /** Sends a control message without memory. Resolves when the peer's adapter has it. */
  control(op: number, data: number): Promise<void> {
    return this.#control([[], { addr: 0n, rkey: 0 }, { immData: immediate(op, data) }]);
  }

  /** Tells the peer the limit of its messages, and a buffer where one is free. */
  announce(limit: number, buffer: Target | undefined): void {
    if (buffer === undefined) {
      void this.control(Op.SGL, limit);
      return;
    }
    const { outbox: mr } = this.#parts;
    const { sgl, isBigEndian } = this.#peer!;
    const offset = this.#announcements + this.#slot * SGE_BYTES;
    this.#slot = (this.#slot + 1) % MAX_CONTROLS;
    const bytes = mr.bytes(offset, SGE_BYTES);
    encodeTarget(new DataView(bytes.buffer, bytes.byteOffset, SGE_BYTES), 0, buffer, !isBigEndian);
    const addr = sgl.addr + BigInt(this.#entry * SGE_BYTES);
    this.#entry = (this.#entry + 1) % sgl.length;
    const list = [{ mr, offset, length: SGE_BYTES }];
    void this.#control([list, { addr, rkey: sgl.key }, { immData: immediate(Op.SGL, limit) }]);
  }

  #control(write: WriteArguments): Promise<void> {
    this.#controls++;
    return this.#post(write, () => {
      this.#controls--;
      this.#outcomes.onControl();
    });
  }

  #post(write: WriteArguments, onDone: () => void): Promise<void> {
    const sending = this.#parts.qp.write(...write).then(
      () => {
        onDone();
        this.wake();
      },
      (error) => {
        throw this.#outcomes.onFailure(error);
      },
    );
    sending.catch(() => {}); // `onFailure` has it.
    return sending;
  }

  /** Something has changed: those who wait look again. */
  wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  /** Resolves with the next `wake`. */
  event(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }
}
