/** Pause frames of a capture: PFC and PAUSE, with the port that sent them. */
import { PauseValue, u16, u32 } from '@node-roce/wire';

/** A pause frame. One object is used again for each: copy what has to outlive the callback. */
export class PauseFrame extends PauseValue {
  /** Frame number from 1. */
  frame = 0;
  /** Nanoseconds since the first frame of the capture. */
  time = 0;
  /** MAC address of the port that asks for the pause, as a number of 48 bits. */
  source = 0;
  /** Speed of the interface in bits per second as the capture states it; 0: it does not. */
  speed = 0;
}

/** The MAC address at `o` as a number. */
export const macAt = (b: Uint8Array, o: number): number => u16(b, o) * 2 ** 32 + u32(b, o + 2);

/** `02:00:00:00:00:01`. */
export const macText = (mac: number): string =>
  mac
    .toString(16)
    .padStart(12, '0')
    .replace(/..(?=.)/g, '$&:');
