/** The line between the tester and the device: frames with times, and one way to wait, whichever clock there is. */
import { type Packet, parseFrame } from '@node-roce/wire';

/** Addresses of one end. */
export interface End {
  /** `10.0.0.1`, `02:00:00:00:00:01`. */
  ip: string;
  mac: string;
}

/** A frame that was sent or came. */
export interface Entry {
  /** ms, of the line's clock. */
  time: number;
  from: 'tester' | 'device';
  /** From the Ethernet header on. */
  frame: Uint8Array;
  /** Absent for a frame that is no whole RoCE packet. */
  packet?: Packet;
  /** Why there is no packet. */
  reason?: string;
}

/** How frames leave and arrive: real sockets and the machine's clock, or a simulated network in virtual time. */
export interface Line {
  readonly tester: End;
  readonly device: End;
  /** Needs that it serves: a line on which the kernel writes the IP and UDP headers serves neither `frames` nor `spoof`. */
  readonly offers: ReadonlySet<string>;
  /** UDP port that packets leave from, where it is not free. */
  readonly sourcePort?: number;
  /** ms. */
  now(): number;
  send(frame: Uint8Array): void;
  /** Takes the frames that came since the last call. */
  take(): { time: number; frame: Uint8Array }[];
  /** Resolves when `done` returns true, or after `ms`. `done` is called each time that a frame came. */
  wait(done: () => boolean, ms: number): Promise<void>;
}

/** An entry of the log, with the frame parsed. */
export function entryOf(time: number, from: Entry['from'], frame: Uint8Array): Entry {
  const parsed = parseFrame(frame);
  if (parsed.ok) return { time, from, frame, packet: parsed.packet };
  return { time, from, frame, reason: parsed.detail };
}
