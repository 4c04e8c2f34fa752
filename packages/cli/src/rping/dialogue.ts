/** The dialogue of rping (rdma-core, librdmacm/examples/rping.c): the messages of each side, and the queue pair that sends them. */
import type { CmId } from '@node-roce/rdmacm';
import {
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type Remote,
  RoceError,
} from '@node-roce/verbs-api';

/** Bytes of a message: address, rkey and size, big-endian. The server's have no meaning but their length. */
const INFO_BYTES = 16;

/** READs and atomics at a time, and retries: as the tool has them. */
export const RPING_PARAMETERS = { responderResources: 1, initiatorDepth: 1, retryCount: 7 } as const;

const FIRST_CHARACTER = 65;
const LAST_CHARACTER = 122;

/** The text of ping number `ping`, as a client sends it: a heading, rotating characters, and a zero byte at the end. */
export function pingText(ping: number, size: number): Uint8Array {
  const heading = new TextEncoder().encode(`rdma-ping-${ping}: `);
  const bytes = new Uint8Array(size);
  const letters = LAST_CHARACTER - FIRST_CHARACTER + 1;
  bytes.set(heading.subarray(0, size));
  for (let i = heading.length; i < size; i++)
    bytes[i] = FIRST_CHARACTER + ((ping + i - heading.length) % letters);
  bytes[size - 1] = 0;
  return bytes;
}

/** Bytes before the first zero, as text. Control characters, which could command a terminal, become U+FFFD: a peer chose the bytes. */
export function textOf(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  const text = new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  return text.replaceAll(/\p{Cc}/gu, '\u{fffd}');
}

/** A range of the peer's memory, as a message gives it. */
export interface RemoteRange extends Remote {
  size: number;
}

/** One side of the dialogue: its queue pair, and memory for messages and data. */
export class RpingSide implements AsyncDisposable {
  readonly id: CmId;
  readonly qp: QueuePair;
  /** `size` bytes that the peer reads or writes: of a client, what it sends; of a server, what it got. */
  readonly data: MemoryRegion;
  /** Of a client: what comes back. */
  readonly sink: MemoryRegion;
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #received: MemoryRegion;
  #arriving: Promise<{ byteLen: number }>;

  /** Creates the queue pair of an id, with one receive posted. */
  static async open(id: CmId, size: number): Promise<RpingSide> {
    const pd = await id.device.allocPd();
    const cq = await id.device.createCq(64);
    const qp = await id.createQp(pd, {
      sendCq: cq,
      cap: { maxSendWr: 16, maxRecvWr: 2, maxInlineData: INFO_BYTES },
    });
    const access = { remoteRead: true, remoteWrite: true };
    const data = await pd.registerMr(new Uint8Array(size), { access });
    const sink = await pd.registerMr(new Uint8Array(size), { access });
    const received = await pd.registerMr(new Uint8Array(INFO_BYTES));
    return new RpingSide({ id, pd, cq, qp, data, sink, received });
  }

  private constructor(parts: {
    id: CmId;
    pd: ProtectionDomain;
    cq: CompletionQueue;
    qp: QueuePair;
    data: MemoryRegion;
    sink: MemoryRegion;
    received: MemoryRegion;
  }) {
    this.id = parts.id;
    this.qp = parts.qp;
    this.data = parts.data;
    this.sink = parts.sink;
    this.#pd = parts.pd;
    this.#cq = parts.cq;
    this.#received = parts.received;
    this.#arriving = this.#receive();
  }

  #receive(): Promise<{ byteLen: number }> {
    const arriving = this.qp.receive(this.#received);
    arriving.catch(() => {}); // Reported to who waits for the message.
    return arriving;
  }

  /** Sends the peer the place of memory. A server's message holds none: it means "go on". */
  async say(range?: MemoryRegion): Promise<void> {
    const message = new Uint8Array(INFO_BYTES);
    if (range) {
      const view = new DataView(message.buffer);
      view.setBigUint64(0, range.iova);
      view.setUint32(8, range.rkey);
      view.setUint32(12, range.length);
    }
    await this.qp.send(message);
  }

  /** The peer's next message. */
  async hear(): Promise<RemoteRange> {
    const { byteLen } = await this.#arriving;
    if (byteLen !== INFO_BYTES)
      throw new RoceError('ERR_ROCE_EXCHANGE', `the peer sent ${byteLen} bytes`, {
        errno: 'EIO',
        expected: `${INFO_BYTES} bytes: address, rkey and size`,
      });
    const bytes = this.#received.bytes(0, INFO_BYTES);
    const view = new DataView(bytes.buffer, bytes.byteOffset, INFO_BYTES);
    const range = { addr: view.getBigUint64(0), rkey: view.getUint32(8), size: view.getUint32(12) };
    this.#arriving = this.#receive();
    return range;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.qp.close();
    for (const region of [this.data, this.sink, this.#received]) await region.deregister();
    await this.#cq.destroy();
    await this.#pd.dealloc();
    await this.id.destroy();
  }
}

/**
 * One ping of a client: the server reads `text` and writes it back. Returns the text that came back.
 */
export async function ping(side: RpingSide, text: Uint8Array): Promise<Uint8Array> {
  side.data.bytes(0, text.length).set(text);
  await side.say(side.data);
  await side.hear();
  await side.say(side.sink);
  await side.hear();
  return side.sink.bytes(0, text.length);
}

/**
 * One ping of a server.
 *
 * @param onData called with what it read, before it answers: the client may leave with the answer
 */
export async function pong(side: RpingSide, onData: (bytes: Uint8Array) => void): Promise<void> {
  const source = await side.hear();
  if (source.size > side.data.length)
    throw new RoceError('ERR_ROCE_EXCHANGE', `the client's message has ${source.size} bytes`, {
      errno: 'EMSGSIZE',
      expected: `-S of at least that; it is ${side.data.length}`,
    });
  const range = { mr: side.data, length: source.size };
  await side.qp.read(range, source);
  const bytes = side.data.bytes(0, source.size);
  onData(bytes);
  await side.say();
  const sink = await side.hear();
  // As the tool: up to the zero byte and with it, not `size`.
  const end = bytes.indexOf(0);
  await side.qp.write({ mr: side.data, length: end < 0 ? source.size : end + 1 }, sink);
  await side.say();
}
