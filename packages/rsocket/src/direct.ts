/** Memory that is written without the stream: both sides' mappings, and the WRITEs into the peer's. */
import { invalid } from '@node-roce/rdmacm/parts';
import type { IoMapping, Mappings } from './mappings.ts';
import type { Sending } from './sending.ts';
import { type ConnectionData, encodeMapping, MAPPING_BYTES, SGE_BYTES } from './wire.ts';

/** The calls of `iomap` and `iowrite` of one connection. */
export class Direct {
  readonly #mappings: Mappings;
  readonly #sending: Sending;
  readonly #checkOpen: () => void;
  /** Resolves when all of the last `write` is under way. */
  #last: Promise<void> = Promise.resolve();

  /** @param checkOpen throws where the connection has ended */
  constructor(mappings: Mappings, sending: Sending, checkOpen: () => void) {
    this.#mappings = mappings;
    this.#sending = sending;
    this.#checkOpen = checkOpen;
  }

  /** Offers memory to the peer. */
  map(bytes: Uint8Array, offset: bigint, { sgl, mappings, isBigEndian }: ConnectionData): Promise<IoMapping> {
    return this.#mappings.offer(bytes, offset, mappings, async (place, entry) => {
      for (;;) {
        this.#checkOpen();
        if (this.#sending.hasRoomFor(MAPPING_BYTES)) break;
        await this.#sending.event();
      }
      const addr = sgl.addr + BigInt(sgl.length * SGE_BYTES + place * MAPPING_BYTES);
      await this.#sending.mapping(encodeMapping(entry, !isBigEndian), addr, sgl.key, place);
    });
  }

  /**
   * Writes into memory that the peer offers; resolves when the peer's adapter has all of it. Calls are in order.
   *
   * @param onProgress is called whenever bytes leave
   */
  async write(bytes: Uint8Array, offset: bigint, onProgress: () => void): Promise<void> {
    const before = this.#last;
    let isPosted = () => {};
    this.#last = new Promise((resolve) => {
      isPosted = resolve;
    });
    let sent: Promise<void> | undefined;
    try {
      await before;
      this.#checkOpen();
      for (let at = 0; at < bytes.length; ) {
        const target = this.#mappings.find(offset + BigInt(at));
        if (!target)
          throw invalid('offset', `${offset + BigInt(at)}`, 'memory that the peer has mapped there');
        this.#checkOpen();
        const { free } = this.#sending;
        if (free === 0) {
          await this.#sending.event();
          continue;
        }
        const part = bytes.subarray(at, at + Math.min(target.length, free));
        at += part.length;
        sent = this.#sending.direct(part, target.addr, target.key);
        onProgress();
      }
    } finally {
      isPosted();
    }
    await sent;
  }
}
