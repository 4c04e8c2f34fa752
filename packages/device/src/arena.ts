/** The memory of a program's rings: a file that program and device map, and which parts of it are in use. */
import { closeSync } from 'node:fs';
import { createSharedFile } from '@node-roce/dgram-native';
import { RoceError } from '@node-roce/transport';
import { mapFile, unmapFile } from './memory.ts';

/** Bytes of address space that rings of one program have; pages are there once they are written. */
export const ARENA_BYTES = 2 ** 30;
/** Parts begin at multiples of this: two rings share no cache line. */
const GRAIN = 256;

/** A part in use. */
interface Part {
  start: number;
  end: number;
}

/** First fit: a program has few rings, and makes them seldom. */
export class Arena {
  readonly fd: number;
  readonly #pages: ReturnType<typeof mapFile>;
  /** In the order of their start. */
  readonly #parts: Part[] = [];

  constructor() {
    this.fd = createSharedFile(ARENA_BYTES);
    try {
      this.#pages = mapFile(this.fd, 0, ARENA_BYTES);
    } catch (error) {
      closeSync(this.fd);
      throw error;
    }
  }

  get buffer(): SharedArrayBuffer {
    return this.#pages.buffer;
  }

  /** The start of a part; throws ENOMEM where no room is left. Its bytes are what the last user left. */
  allocate(bytes: number): number {
    const size = Math.ceil(bytes / GRAIN) * GRAIN;
    let start = 0;
    let i = 0;
    while (i < this.#parts.length && this.#parts[i].start - start < size) start = this.#parts[i++].end;
    if (start + size > ARENA_BYTES)
      throw new RoceError('ERR_ROCE_LIMIT', 'no room is left for a ring', { errno: 'ENOMEM' });
    this.#parts.splice(i, 0, { start, end: start + size });
    return start;
  }

  free(start: number): void {
    const i = this.#parts.findIndex((part) => part.start === start);
    if (i >= 0) this.#parts.splice(i, 1);
  }

  close(): void {
    unmapFile(this.#pages);
    closeSync(this.fd);
  }
}
