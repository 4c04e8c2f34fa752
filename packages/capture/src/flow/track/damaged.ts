/** Packets of one requester, or answers to it, that came with a wrong ICRC: what they should have been came again later. */
import { PSN_MASK } from '@node-roce/wire';

/** The last ones are remembered. */
const MAX_DAMAGED = 64;
/** A damaged packet was seen by so much before its absence was noticed, ns. */
export const DAMAGED_BEFORE = 1e9;

/** Frames with a wrong ICRC by the PSN that they carry: which may be damaged, too, but mostly is not. */
export class DamagedPackets {
  readonly #entries: { psn: number; frame: number; time: number }[] = [];

  /** @param psn as in the packet */
  add(psn: number, frame: number, time: number): void {
    if (this.#entries.length === MAX_DAMAGED) this.#entries.shift();
    this.#entries.push({ psn, frame, time });
  }

  /** The frame with this PSN, since a time; 0: none. */
  frameOf(psn: number, since: number): number {
    if (this.#entries.length === 0) return 0;
    return this.#entries.findLast((entry) => entry.psn === psn && entry.time >= since)?.frame ?? 0;
  }

  /** The last frame with one of these PSNs, since a time; 0: none. */
  frameBetween(first: number, last: number, since: number): number {
    if (this.#entries.length === 0) return 0;
    const span = (last - first) & PSN_MASK;
    return (
      this.#entries.findLast(({ psn, time }) => time >= since && ((psn - first) & PSN_MASK) <= span)?.frame ??
      0
    );
  }
}
