/** The length that the capture cut frames at. */
import { AETH_BYTES, ICRC_BYTES } from '@node-roce/wire';
import type { RocePacket } from '../../read/packet.ts';

/** Whether cut frames are always as long, and what they hide. */
export class CutLength {
  /** An AETH was cut off: whether an answer was an ACK or a NAK is not known. */
  hidesNaks = false;
  #length = 0;

  /** The captured bytes of cut frames; 0: none was cut, −1: they have several lengths. */
  get length(): number {
    return this.#length;
  }

  /** A packet whose ICRC could not be checked. */
  note({ bth, info, payload, payloadLength, padCount, end, frameLength }: RocePacket): void {
    if (payload + payloadLength + padCount + ICRC_BYTES <= end) return;
    const { aeth } = info.offsets;
    if (aeth >= 0 && bth + aeth + AETH_BYTES > end) this.hidesNaks = true;
    if (this.#length === 0) this.#length = frameLength;
    else if (this.#length !== frameLength) this.#length = -1;
  }
}
