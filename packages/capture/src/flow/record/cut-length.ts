/** The length that the capture cut frames at. */
import { ICRC_BYTES } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';

/** Whether cut frames are always as long. */
export class CutLength {
  #length = 0;

  /** The captured bytes of cut frames; 0: none was cut, −1: they have several lengths. */
  get length(): number {
    return this.#length;
  }

  /** A packet whose ICRC could not be checked. */
  note({ payload, payloadLength, padCount, end, frameLength }: RocePacket): void {
    if (payload + payloadLength + padCount + ICRC_BYTES <= end) return;
    if (this.#length === 0) this.#length = frameLength;
    else if (this.#length !== frameLength) this.#length = -1;
  }
}
