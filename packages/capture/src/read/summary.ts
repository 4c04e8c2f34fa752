/** The reading of a capture in numbers. */

/** Frames and packets that the reader took, and those that it could not. */
export interface CaptureSummary {
  /** Absent for a stream without a name. */
  file: string | undefined;
  format: string;
  linkTypes: string[];
  /** UTC of the first frame, ISO 8601 with nanoseconds. */
  startTime: string | undefined;
  duration: number;
  frames: number;
  rocePackets: number;
  otherFrames: number;
  /** PFC and PAUSE frames. */
  pauseFrames: number;
  /** ICMP errors about RoCE packets. */
  icmpErrors: number;
  /** Of the packets: samples of the traffic (sFlow), which belong to no connection. */
  sampledPackets: number;
  /** Kinds of these with their numbers, most first: `UDP port 53`, `EtherType 0x806`, `link type ERF`. */
  otherKinds: Record<string, number>;
  /** UDP ports other than 4791 and those of the options that carry RoCE: their ICRCs are right. */
  otherPorts: number[];
  /** Frames that are RoCE, or were cut before that shows, and could not be parsed; by reason. */
  damaged: Record<string, number>;
  /** Frames cut by the snap length. */
  cutFrames: number;
  /** Bytes that they were cut at, if all of them were cut at the same length. */
  cutLength?: number | undefined;
  /** Packets cut inside their headers, whose fields are not known. */
  cutHeaders: number;
  /** Super-packets that were split, and their packets. */
  superPackets: number;
  /** Bytes of a frame that show all headers, computed from the frames seen; 0: whole frames, as there are super-packets. */
  neededSnapLength: number;
  icrc: { ok: number; bad: number; none: number };
  /** Drops that the capturing system admits (pcapng interface statistics). */
  droppedByCapture: number | undefined;
  /** The damage that ended the reading before the file's end, if any. */
  damage: string | undefined;
}
