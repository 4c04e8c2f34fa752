/** Messages, put together from request packets in the order of their PSNs. */
import { OperationBits, opcodeInfo, PSN_MASK } from '@node-roce/wire';
import type { Message, MessageCounts, MessageFailure } from '../facts.ts';
import { EntryFlags, type Outstanding } from './outstanding.ts';
import { UNKNOWN_LENGTH } from './sent-requests.ts';

/** The operation that a request packet is of; the message's, when it is its last packet. */
function operationName(opcode: number): string {
  const info = opcodeInfo(opcode);
  if (info === undefined) return 'UNKNOWN';
  if (info.isReadRequest) return 'RDMA_READ';
  if (info.operation === OperationBits.COMPARE_SWAP) return 'CMP_SWAP';
  if (info.operation === OperationBits.FETCH_ADD) return 'FETCH_ADD';
  if (info.isSend) return info.hasInvalidate ? 'SEND_WITH_INV' : info.hasImmediate ? 'SEND_WITH_IMM' : 'SEND';
  if (info.isWrite) return info.hasImmediate ? 'RDMA_WRITE_WITH_IMM' : 'RDMA_WRITE';
  if (info.operation === OperationBits.FLUSH) return 'FLUSH';
  if (info.operation === OperationBits.ATOMIC_WRITE) return 'ATOMIC_WRITE';
  return info.key;
}

export const newMessageCounts = (): MessageCounts => ({
  total: 0,
  completed: 0,
  seenWhole: 0,
  failed: 0,
  incomplete: 0,
  bytes: 0,
  byOperation: {},
});

/** A message whose connection and number are given when it is handed out. */
export type UnnumberedMessage = Omit<Message, 'id' | 'connection' | 'from'>;

/** Operations of one queue pair's requests; packets come in with `take`, in the order of PSNs. */
export class MessageAssembler {
  readonly counts: MessageCounts = newMessageCounts();
  readonly #onMessage: (message: UnnumberedMessage) => void;
  #current: UnnumberedMessage | undefined;
  /** Bytes that the WRITE's RETH promised. */
  #promised = 0;
  /** The capture does not show all of it. */
  #holed = false;
  /** Why the next message fails; those after it are flushed (IBTA vol 1 §10.3.1.7). */
  failure: MessageFailure | undefined;
  /** Why the next message may fail after the capture's end, which does not show that it does. */
  suspicion: MessageFailure | undefined;
  /** The message that each failure ended, or may end. Made with the first: most queue pairs have none. */
  #ended: Map<MessageFailure, UnnumberedMessage> | undefined;
  /** The capture shows when a message was answered: it does not if the AETHs of ACKs are cut. */
  knowsAnswers = true;

  constructor(emit: (message: UnnumberedMessage) => void) {
    this.#onMessage = emit;
  }

  /** The first message that this failure ended, or may have ended. */
  endedBy(failure: MessageFailure): UnnumberedMessage | undefined {
    return this.#ended?.get(failure);
  }

  /** Whether a message has begun and not ended. */
  get isOpen(): boolean {
    return this.#current !== undefined;
  }

  /**
   * The next packet. `answered`: when the answer that covers it came, undefined if none did; for UC and UD
   * `reliable` is false, and nothing answers.
   */
  take(out: Outstanding, entry: number, answered: number | undefined, reliable: boolean): void {
    const slot = out.slot(entry);
    if ((out.flags[slot] & EntryFlags.SEEN) === 0) {
      this.#holed = true;
      if (this.#current !== undefined) this.#current.bytes = undefined;
      return;
    }
    const info = opcodeInfo(out.opcodes[slot]);
    if (info === undefined) return;
    if (info.first) {
      this.breakOff();
      this.#begin(out, slot);
      this.#promised = info.isWrite && out.lengths[slot] !== UNKNOWN_LENGTH ? out.lengths[slot] : -1;
      this.#holed = false;
    } else if (this.#current === undefined) {
      this.#begin(out, slot);
      this.#promised = -1;
      this.#holed = true;
    }
    const message = this.#current!;
    this.#extend(message, out, slot, info.isReadRequest || info.isAtomic);
    if (!info.last) return;
    message.operation = operationName(info.opcode);
    this.#finish(message, answered, reliable);
  }

  /** One that is whole as it comes: a datagram. */
  whole(message: UnnumberedMessage): void {
    this.#emit(message);
  }

  /** The message ends here without its last packet. */
  breakOff(): void {
    const message = this.#current;
    if (message === undefined) return;
    message.bytes = this.#promised > 0 ? this.#promised : undefined;
    this.#emit(message);
  }

  #begin(out: Outstanding, slot: number): void {
    const opcode = out.opcodes[slot];
    this.#current = {
      operation: operationName(opcode),
      bytes: 0,
      firstPsn: out.psns[slot] & PSN_MASK,
      lastPsn: out.psns[slot] & PSN_MASK,
      packets: 0,
      retransmitted: 0,
      firstFrame: out.firstFrames[slot],
      lastFrame: out.lastFrames[slot],
      start: out.firstTimes[slot],
      end: out.lastTimes[slot],
      latency: undefined,
      ackRoundTrip: undefined,
      outcome: 'incomplete',
      failure: undefined,
    };
  }

  #extend(message: UnnumberedMessage, out: Outstanding, slot: number, isAsking: boolean): void {
    message.packets++;
    message.retransmitted += out.sends[slot] - 1;
    message.lastPsn = (out.psns[slot] + Math.max(1, out.spans[slot]) - 1) & PSN_MASK;
    if (out.firstFrames[slot] < message.firstFrame) message.firstFrame = out.firstFrames[slot];
    if (out.lastFrames[slot] > message.lastFrame) message.lastFrame = out.lastFrames[slot];
    if (out.firstTimes[slot] < message.start) message.start = out.firstTimes[slot];
    if (out.lastTimes[slot] > message.end) message.end = out.lastTimes[slot];
    if (isAsking && out.lengths[slot] === UNKNOWN_LENGTH) message.bytes = undefined;
    if (message.bytes !== undefined) message.bytes += isAsking ? out.lengths[slot] : out.sizes[slot];
  }

  #finish(message: UnnumberedMessage, answered: number | undefined, reliable: boolean): void {
    if (this.#holed) {
      message.bytes = this.#promised > 0 ? this.#promised : undefined;
    } else if (!reliable) {
      message.outcome = 'seen-whole';
    } else if (answered !== undefined) {
      message.outcome = 'completed';
    }
    if (answered !== undefined && this.knowsAnswers) {
      message.latency = Math.max(0, answered - message.start);
      message.ackRoundTrip = Math.max(0, answered - message.end);
    }
    this.#emit(message);
  }

  #emit(message: UnnumberedMessage): void {
    this.#current = undefined;
    this.#holed = false;
    const { counts } = this;
    const reason = this.failure ?? this.suspicion;
    this.suspicion = undefined;
    if (reason !== undefined && reason !== 'flushed') {
      this.#ended ??= new Map();
      if (!this.#ended.has(reason)) this.#ended.set(reason, message);
    }
    if (this.failure !== undefined) {
      message.outcome = 'failed';
      message.failure = this.failure;
      this.failure = 'flushed';
    }
    counts.total++;
    const isWhole = message.outcome === 'completed' || message.outcome === 'seen-whole';
    counts[message.outcome === 'seen-whole' ? 'seenWhole' : message.outcome]++;
    if (isWhole) counts.bytes += message.bytes ?? 0;
    counts.byOperation[message.operation] = (counts.byOperation[message.operation] ?? 0) + 1;
    this.#onMessage(message);
  }
}
