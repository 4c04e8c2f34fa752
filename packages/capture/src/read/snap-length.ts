/** The snap length that a capture of the same traffic needs, computed from the frames seen. */
import { LONGEST_HEADER_BYTES, type RocePacket } from './packet.ts';

/** IPv6, UDP, and the longest headers of RoCE: what may follow where a frame was cut inside its headers. */
const REST_BYTES = 40 + 8 + LONGEST_HEADER_BYTES;
/** Advice is rounded up, so that options of a few bytes more still fit. */
const STEP = 16;

/** Follows where headers end. */
export class SnapLength {
  #most = 0;
  #whole = false;

  /** A packet that was decoded. */
  packet({ payload, frameOffset, parts }: RocePacket): void {
    if (parts > 1) this.#whole = true;
    else if (payload - frameOffset > this.#most) this.#most = payload - frameOffset;
  }

  /** A super-packet that was cut. */
  superPacket(): void {
    this.#whole = true;
  }

  /** A frame that was cut inside its headers, after so many bytes. */
  cut(length: number): void {
    this.#most = Math.max(this.#most, length + REST_BYTES);
  }

  /** Bytes of a frame that hold all headers; 0: all bytes, as super-packets can be split only whole. */
  get needed(): number {
    return this.#whole ? 0 : Math.ceil(this.#most / STEP) * STEP;
  }
}

/** The advice as the end of a sentence: `a snap length of 160 bytes shows all headers`. */
export const snapAdvice = (needed: number): string =>
  needed === 0
    ? 'capture whole packets (-s 0): super-packets of segmentation offload can be split only whole'
    : `a snap length of ${needed} bytes (-s ${needed}) shows all headers of such frames`;
