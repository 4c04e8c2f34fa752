/** The first and the last packet of a direction. */
import type { RocePacket } from '../../read/packet.ts';

/** From the first packet to the last one that was noted; the end is never before the begin of the capture's order. */
export class Span {
  /** The first packet was a request: it went from `a`. */
  readonly startsWithRequest: boolean;
  readonly firstFrame: number;
  readonly start: number;
  readonly firstPort: number;
  lastFrame = 0;
  end = 0;
  /** UDP source port of the last packet. */
  lastPort: number;

  constructor({ info, frame, time, sourcePort }: RocePacket) {
    // A CNP goes to the sender of marked packets: the requester, except of READ responses.
    this.startsWithRequest = info.isRequest;
    this.firstFrame = frame;
    this.start = time;
    this.firstPort = sourcePort;
    this.lastPort = sourcePort;
  }

  /** The next packet. */
  note({ frame, time, sourcePort }: RocePacket): void {
    this.lastFrame = frame;
    this.end = time;
    this.lastPort = sourcePort;
  }
}
