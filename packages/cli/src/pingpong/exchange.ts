/**
 * The TCP exchange of ibv_rc_pingpong and its variants (libibverbs examples): for each queue pair, 52 bytes
 * `lid:qpn:psn:gid` in hexadecimal with a NUL. The client writes; the server takes its queue pairs to RTS and
 * answers; the client ends it with `done`.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { RoceError } from '@node-roce/verbs-api';

/** The data that each side sends to the other. */
export interface PingpongAddress {
  /** 16 bits; 0 on RoCE. */
  lid: number;
  /** 24 bits. */
  qpNum: number;
  /** First PSN that this side sends, 24 bits. */
  psn: number;
  /** 16 bytes. */
  gid: Uint8Array;
}

const MESSAGE_BYTES = 52;
const DONE = 'done\0';
/** Addresses that ibv_srq_pingpong sends whatever its number of queue pairs; zeros fill the rest. */
export const SRQ_SLOTS = 256;
const MAX_BYTES = MESSAGE_BYTES * SRQ_SLOTS + DONE.length;

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');

export function encodeAddress({ lid, qpNum, psn, gid }: PingpongAddress): Buffer {
  return Buffer.from(
    `${hex(lid, 4)}:${hex(qpNum, 6)}:${hex(psn, 6)}:${Buffer.from(gid).toString('hex')}\0`,
    'latin1',
  );
}

/** @throws RoceError ERR_ROCE_EXCHANGE for anything else than what the tool writes */
export function decodeAddress(message: Uint8Array): PingpongAddress {
  const bytes = Buffer.from(message);
  const match = /^([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0$/i.exec(
    bytes.toString('latin1'),
  );
  if (!match) {
    throw broken(`the peer sent ${quoted(bytes)}, which is not an address as ibv_rc_pingpong sends it`);
  }
  const [, lid, qpn, psn, gid] = match as unknown as [string, string, string, string, string];
  return {
    lid: Number.parseInt(lid, 16),
    qpNum: Number.parseInt(qpn, 16),
    psn: Number.parseInt(psn, 16),
    gid: new Uint8Array(Buffer.from(gid, 'hex')),
  };
}

const quoted = (bytes: Buffer) => JSON.stringify(bytes.toString('latin1').slice(0, 60));

function broken(message: string): RoceError {
  return new RoceError('ERR_ROCE_EXCHANGE', message, { errno: 'EIO' });
}

/** Reads a socket by exact numbers of bytes. */
class Inbox {
  #bytes = Buffer.alloc(0);
  #ended = false;
  #changed = () => {};

  constructor(socket: Socket) {
    socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      // No peer of this protocol sends more.
      if (this.#bytes.length > MAX_BYTES) socket.pause();
      this.#changed();
    });
    for (const event of ['end', 'close', 'error']) {
      socket.on(event, () => {
        this.#ended = true;
        this.#changed();
      });
    }
  }

  /** Exactly so many bytes. */
  async read(count: number, signal: AbortSignal): Promise<Buffer> {
    while (this.#bytes.length < count) {
      if (this.#ended) {
        const sent = this.#bytes.length === 0 ? '' : ` (it sent ${quoted(this.#bytes)})`;
        throw broken(`the peer closed the connection before it had sent ${count} bytes${sent}`);
      }
      await new Promise<void>((resolve, reject) => {
        const abort = () => reject(signal.reason);
        this.#changed = () => {
          signal.removeEventListener('abort', abort);
          resolve();
        };
        if (signal.aborted) abort();
        else signal.addEventListener('abort', abort, { once: true });
      });
    }
    const read = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.subarray(count);
    return read;
  }
}

/** How many addresses each side sends. */
export interface Party {
  /** Queue pairs of each side. */
  count: number;
  /** Addresses in a message: 1, or `SRQ_SLOTS`. */
  slots: number;
}

async function readAddresses(
  inbox: Inbox,
  { count, slots }: Party,
  signal: AbortSignal,
): Promise<PingpongAddress[]> {
  const addresses: PingpongAddress[] = [];
  for (let i = 0; i < slots; i++) addresses.push(decodeAddress(await inbox.read(MESSAGE_BYTES, signal)));
  const used = addresses.filter(({ qpNum }) => qpNum !== 0);
  if (used.length !== count) {
    throw broken(`the peer has ${used.length} queue pairs, not ${count}: both sides need the same --num-qp`);
  }
  return used;
}

const UNUSED: PingpongAddress = { lid: 0, qpNum: 0, psn: 0, gid: new Uint8Array(16) };

function encodeAddresses(addresses: readonly PingpongAddress[], { slots }: Party): Buffer {
  return Buffer.concat(Array.from({ length: slots }, (_, i) => encodeAddress(addresses[i] ?? UNUSED)));
}

export interface ServeOptions extends Party {
  port: number;
  /** Seconds that a client may take from connecting to `done`. */
  timeout: number;
  signal: AbortSignal;
  onListening?: () => void;
}

/**
 * The server's side: waits for a client. `answer` connects our queue pairs to the client's, in order, and returns
 * their addresses.
 */
export async function serveExchange(
  { port, timeout, signal, onListening, ...party }: ServeOptions,
  answer: (remotes: readonly PingpongAddress[], localAddress: string) => Promise<readonly PingpongAddress[]>,
): Promise<void> {
  const server = createServer();
  let socket: Socket | undefined;
  try {
    server.listen(port);
    await once(server, 'listening', { signal });
    onListening?.();
    [socket] = (await once(server, 'connection', { signal })) as [Socket];
    const within = withTimeout(signal, timeout);
    const inbox = new Inbox(socket);
    socket.setNoDelay(true);
    const remotes = await readAddresses(inbox, party, within);
    socket.write(encodeAddresses(await answer(remotes, socket.localAddress ?? ''), party));
    const done = await inbox.read(DONE.length, within);
    if (done.toString('latin1') !== DONE) {
      throw broken(`the peer sent ${quoted(done)} instead of "done"`);
    }
  } catch (error) {
    throw explained(error, signal, 'the client', timeout);
  } finally {
    server.close();
    socket?.end();
  }
}

export interface CallOptions extends Party {
  host: string;
  port: number;
  /** Seconds for all of the exchange. */
  timeout: number;
  signal: AbortSignal;
}

/**
 * The client's side. `ready` connects our queue pairs to the server's, in order; the server hears `done` only after that, and sends nothing before it has received a message.
 */
export async function callExchange(
  { host, port, timeout, signal, ...party }: CallOptions,
  locals: readonly PingpongAddress[],
  ready: (remotes: readonly PingpongAddress[]) => Promise<void>,
): Promise<void> {
  const socket = connect({ host, port });
  const within = withTimeout(signal, timeout);
  try {
    await once(socket, 'connect', { signal: within });
    const inbox = new Inbox(socket);
    socket.setNoDelay(true);
    socket.write(encodeAddresses(locals, party));
    await ready(await readAddresses(inbox, party, within));
    socket.end(DONE);
  } catch (error) {
    socket.destroy();
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') {
      throw new RoceError(
        'ERR_ROCE_EXCHANGE',
        `no server listens at TCP port ${port} of ${host}: start 'roce pingpong' or 'ibv_rc_pingpong -g INDEX' there first`,
        { errno: 'EIO', cause: error },
      );
    }
    throw explained(error, signal, 'the server', timeout);
  }
}

const withTimeout = (signal: AbortSignal, seconds: number) =>
  AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(seconds * 1000))]);

/** Rewords a timeout; an abort by the user and other errors stay as they are. */
function explained(error: unknown, signal: AbortSignal, peer: string, timeout: number): unknown {
  const { name } = error as Error;
  if (signal.aborted || (name !== 'AbortError' && name !== 'TimeoutError')) return error;
  return new RoceError('ERR_ROCE_TIMEOUT', `${peer} was silent for ${timeout} s`, { errno: 'EIO' });
}
