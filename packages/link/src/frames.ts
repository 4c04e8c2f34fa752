/** Whole Ethernet frames of an interface, through the native addon's packet sockets. */
import { FrameSocket } from '@node-roce/dgram-native';
import {
  FRAME_SLOT_WORDS,
  type FrameBatch,
  type FrameHost,
  type FramePort,
  type FrameRule,
  RoceError,
  type TxBatch,
} from '@node-roce/transport';
import { frameFilter } from './frame-filter.ts';

/** Frames taken in by one call. */
const FRAMES = 32;

/** The frames of an interface. The slab is made when the first queue pair is. */
export class InterfaceFrames implements FrameHost {
  readonly #interface: string;
  readonly #onWake: () => void;
  #batch: FrameBatch | undefined;

  constructor(name: string, onWake: () => void) {
    this.#interface = name;
    this.#onWake = onWake;
  }

  get batch(): FrameBatch {
    this.#batch ??= {
      slab: new Uint8Array(FRAMES * FrameSocket.FRAME_ROOM),
      slots: new Uint32Array(FRAMES * FRAME_SLOT_WORDS),
    };
    return this.#batch;
  }

  open(): FramePort {
    try {
      return new SocketPort(new FrameSocket({ interface: this.#interface, onWake: this.#onWake }));
    } catch (error) {
      throw portError(error as NodeJS.ErrnoException, this.#interface);
    }
  }
}

class SocketPort implements FramePort {
  readonly #socket: FrameSocket;

  constructor(socket: FrameSocket) {
    this.#socket = socket;
  }

  setFilter(rules: readonly FrameRule[]): void {
    this.#socket.setFilter(frameFilter(rules));
  }

  checkFilter(rules: readonly FrameRule[]): void {
    frameFilter(rules);
  }

  send({ slots, fragments, count, regions }: TxBatch, from: number): number {
    return this.#socket.send(slots, fragments, from, count, regions.views);
  }

  receive({ slab, slots }: FrameBatch, most: number): number {
    return this.#socket.receive(slab, slots, most);
  }

  wantRead(on: boolean): void {
    this.#socket.wantRead(on);
  }

  stats(): { received: number; dropped: number } {
    return this.#socket.stats();
  }

  close(): void {
    this.#socket.close();
  }
}

function portError(cause: NodeJS.ErrnoException, name: string): Error {
  if (cause.code === 'EPERM' || cause.code === 'EACCES') {
    return new RoceError('ERR_ROCE_NOT_PERMITTED', `type: whole frames of ${name} need CAP_NET_RAW`, {
      errno: 'EPERM',
      attribute: 'type',
      expected: 'a process with CAP_NET_RAW (setcap cap_net_raw+ep, or root)',
      cause,
    });
  }
  return new RoceError('ERR_ROCE_NO_INTERFACE', `type: no frames of ${name}: ${cause.message}`, {
    errno: cause.code === 'ENODEV' ? 'ENOENT' : 'EOPNOTSUPP',
    attribute: 'type',
    cause,
  });
}
