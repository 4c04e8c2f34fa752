/**
 * Messages between the library of a program and the device, over a Unix socket, little-endian. A request is
 * `length, call, payload`, its reply `length, errno, payload`; lengths count the payload. native/ibverbs/protocol.h is the
 * same in C, and a test compares the two.
 */

/** Changes with every change of a message: a library of another version is refused. */
export const PROTOCOL_VERSION = 6;

/** Bytes of a payload at most. A longer one ends the connection. */
export const MAX_PAYLOAD = 1 << 20;

/** Bytes before the payload. */
export const HEADER_BYTES = 8;

/** Calls of a program, by their number. */
export const Call = {
  HELLO: 1,
  LISTEN: 2,
  QUERY_DEVICE: 3,
  QUERY_PORT: 4,
  QUERY_GIDS: 5,
  ALLOC_PD: 6,
  REG_MR: 7,
  REREG_MR: 8,
  CREATE_CHANNEL: 9,
  CREATE_CQ: 10,
  RESIZE_CQ: 11,
  CREATE_SRQ: 12,
  MODIFY_SRQ: 13,
  QUERY_SRQ: 14,
  CREATE_AH: 15,
  CREATE_QP: 16,
  MODIFY_QP: 17,
  QUERY_QP: 18,
  ATTACH_MCAST: 19,
  DETACH_MCAST: 20,
  ALLOC_MW: 21,
  DESTROY: 22,
  POST_SRQ_OP: 23,
  /** Of `roce devinfo`, not of a program: the reply is JSON (`DeviceStatus`). */
  STATUS: 24,
  /** Of librdmacm: the connection becomes an event channel of /dev/infiniband/rdma_cm. */
  UCMA_OPEN: 25,
  /** A command that was written to such a channel. */
  UCMA_COMMAND: 26,
  /** The context and all of its objects end; the reply comes when they have. */
  CLOSE: 27,
} as const;

/** Bits of CREATE_CQ: members of completions that not every queue has. */
export const CqBits = { TIMES: 1, TAGS: 2 } as const;

/** How REG_MR and REREG_MR have the device reach memory: pages of a common file, or the program's own. */
export const Kind = { SHARED: 0, ATTACHED: 1 } as const;

/** A message that follows no rule: the connection it came over ends. */
export class Malformed extends Error {
  override readonly name = 'Malformed';
}

/** A call that fails with this errno. */
export class Failed extends Error {
  readonly errno: number;
  constructor(errno: number, reason = '') {
    super(reason);
    this.errno = errno;
  }
}

/** Reads a payload from its start. Every read checks that the bytes are there. */
export class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  #take(length: number): number {
    const at = this.#at;
    if (length > this.#bytes.length - at) throw new Malformed('a payload that is too short');
    this.#at += length;
    return at;
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#take(4));
  }

  u64(): bigint {
    return this.#bytes.readBigUInt64LE(this.#take(8));
  }

  /** The next bytes, in memory of their own. */
  bytes(length: number): Uint8Array {
    const at = this.#take(length);
    return Uint8Array.prototype.slice.call(this.#bytes, at, at + length);
  }

  /** The payload ends here. */
  end(): void {
    if (this.#at !== this.#bytes.length) throw new Malformed('a payload that is too long');
  }
}

/** Writes a reply: numbers one after the other. */
export class Writer {
  #bytes = Buffer.alloc(512);
  #length = HEADER_BYTES;

  #make(length: number): number {
    const at = this.#length;
    this.#length += length;
    if (this.#length > this.#bytes.length) {
      const bytes = Buffer.alloc(this.#length * 2);
      this.#bytes.copy(bytes, 0, 0, at);
      this.#bytes = bytes;
    }
    return at;
  }

  /** Numbers of 32 bits; an absent one is 0. */
  u32(...values: (number | undefined)[]): this {
    for (const value of values) {
      // First: it may replace the bytes.
      const at = this.#make(4);
      this.#bytes.writeUInt32LE((value ?? 0) >>> 0, at);
    }
    return this;
  }

  u64(value: bigint): this {
    const at = this.#make(8);
    this.#bytes.writeBigUInt64LE(BigInt.asUintN(64, value), at);
    return this;
  }

  bytes(values: Uint8Array): this {
    const at = this.#make(values.length);
    this.#bytes.set(values, at);
    return this;
  }

  /** The message, with its header. */
  finish(errno: number): Buffer {
    this.#bytes.writeUInt32LE(this.#length - HEADER_BYTES, 0);
    this.#bytes.writeUInt32LE(errno, 4);
    return this.#bytes.subarray(0, this.#length);
  }
}
