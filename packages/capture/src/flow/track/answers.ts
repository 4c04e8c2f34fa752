/** The answers that a direction carries: their line of PSNs, and their copies. */
import { u32 } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';
import { unwrap, unwrapFirst } from './outstanding.ts';

/** The line of PSNs of a direction's answers, and their copies in a mirror. */
export class SentAnswers {
  readonly mirrored = new MirroredResponses();
  #psn = -1;

  /** Unwrapped PSN of the last answer; −1: there was none. */
  get psn(): number {
    return this.#psn;
  }

  /** The next answer. @returns its PSN, unwrapped */
  next(psn: number): number {
    this.#psn = this.#psn < 0 ? unwrapFirst(psn) : unwrap(psn, this.#psn);
    return this.#psn;
  }
}

/** PSNs with a place of their own, and words of each: PSN with opcode plus 1, AETH, time. A power of two. */
const PLACES = 128;
const WORDS = 4;
/** A copy comes within this, ns. */
const MAX_LAG = 100e3;

/**
 * Copies of responses and CNPs in a mirror of two ports, where no Identification shows them. A copy and a response that was sent twice
 * look alike: so this is asked only where the requests against them came twice.
 */
class MirroredResponses {
  /** One place until the other direction is known. */
  #waiting: Float64Array | undefined;

  /** The first response: its direction is not paired yet, and its copy may come when it is. */
  first(packet: RocePacket): void {
    this.#waiting ??= new Float64Array(WORDS);
    this.#take(this.#waiting, packet);
  }

  /** The next response. @returns whether it is the copy of one that came just before: every second of equal ones is, in whatever order they come */
  next(packet: RocePacket): boolean {
    if (this.#waiting?.length !== PLACES * WORDS) this.#widen();
    return this.#take(this.#waiting!, packet);
  }

  #take(waiting: Float64Array, { psn, opcode, time, bytes, bth, end, info }: RocePacket): boolean {
    const aeth = info.offsets.aeth < 0 ? end : bth + info.offsets.aeth;
    const word = aeth + 4 <= end ? u32(bytes, aeth) : 0;
    const key = psn * 256 + opcode + 1;
    const at = (psn * WORDS) & (waiting.length - 1);
    if (waiting[at] === key && waiting[at + 1] === word && time - waiting[at + 2] < MAX_LAG) {
      waiting[at] = 0;
      return true;
    }
    waiting[at] = key;
    waiting[at + 1] = word;
    waiting[at + 2] = time;
    return false;
  }

  #widen(): void {
    const waiting = new Float64Array(PLACES * WORDS);
    const psn = Math.floor(((this.#waiting?.[0] ?? 0) - 1) / 256);
    if (psn >= 0) waiting.set(this.#waiting!, (psn * WORDS) & (waiting.length - 1));
    this.#waiting = waiting;
  }
}
