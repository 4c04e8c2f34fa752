/**
 * The TCP exchange of ibv_rc_pingpong (libibverbs examples, rc_pingpong.c): 52 bytes `lid:qpn:psn:gid` in
 * hexadecimal with a NUL. The client writes; the server takes its queue pair to RTS and answers; the client
 * says `done`.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { RoceError } from '@node-roce/verbs-api';

/** What a side tells the other. */
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

const hex = (value: number, digits: number) => value.toString(16).padStart(digits, '0');

export function encodeAddress({ lid, qpNum, psn, gid }: PingpongAddress): Buffer {
  return Buffer.from(
    `${hex(lid, 4)}:${hex(qpNum, 6)}:${hex(psn, 6)}:${Buffer.from(gid).toString('hex')}\0`,
    'latin1',
  );
}

/** @throws RoceError ERR_ROCE_EXCHANGE for anything else than what the tool writes */
export function decodeAddress(message: Uint8Array): PingpongAddress {
  const text = Buffer.from(message).toString('latin1');
  const match = /^([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0$/i.exec(text);
  if (!match) {
    throw broken(
      `the peer sent ${JSON.stringify(text.slice(0, 60))}, which is no address of ibv_rc_pingpong`,
    );
  }
  const [, lid, qpn, psn, gid] = match as unknown as [string, string, string, string, string];
  return {
    lid: Number.parseInt(lid, 16),
    qpNum: Number.parseInt(qpn, 16),
    psn: Number.parseInt(psn, 16),
    gid: new Uint8Array(Buffer.from(gid, 'hex')),
  };
}

function broken(message: string): RoceError {
  return new RoceError('ERR_ROCE_EXCHANGE', message, { errno: 'EIO' });
}

/** Reads exactly so many bytes. */
async function read(socket: Socket, bytes: number, signal: AbortSignal): Promise<Buffer> {
  for (;;) {
    const chunk = socket.read(bytes) as Buffer | null;
    if (chunk?.length === bytes) return chunk;
    // At the end of the stream, `read` gives what is left.
    if (chunk !== null || socket.readableEnded || socket.destroyed) {
      throw broken(
        `the peer closed the connection before it had sent ${bytes} bytes` +
          (chunk === null ? '' : ` (it sent ${JSON.stringify(chunk.toString('latin1'))})`),
      );
    }
    const settled = new AbortController();
    const within = AbortSignal.any([signal, settled.signal]);
    const events = ['readable', 'end', 'close'].map((name) => once(socket, name, { signal: within }));
    for (const event of events) event.catch(() => {});
    try {
      await Promise.race(events);
    } finally {
      settled.abort();
    }
  }
}

export interface ServeOptions {
  port: number;
  /** Seconds that a client may take from connecting to `done`. */
  timeout: number;
  signal: AbortSignal;
  onListening?: () => void;
}

/** The server's side: waits for a client. `answer` connects the queue pair and tells our address. */
export async function serveExchange(
  { port, timeout, signal, onListening }: ServeOptions,
  answer: (remote: PingpongAddress, localAddress: string) => Promise<PingpongAddress>,
): Promise<void> {
  const server = createServer();
  let socket: Socket | undefined;
  try {
    server.listen(port);
    await once(server, 'listening', { signal });
    onListening?.();
    [socket] = (await once(server, 'connection', { signal })) as [Socket];
    const within = withTimeout(signal, timeout);
    socket.on('error', () => {}); // `read` tells.
    socket.setNoDelay(true);
    const remote = decodeAddress(await read(socket, MESSAGE_BYTES, within));
    socket.write(encodeAddress(await answer(remote, socket.localAddress ?? '')));
    const done = await read(socket, DONE.length, within);
    if (done.toString('latin1') !== DONE) {
      throw broken(`the peer sent ${JSON.stringify(done.toString('latin1'))} instead of "done"`);
    }
  } catch (error) {
    throw explained(error, signal, 'the client', timeout);
  } finally {
    server.close();
    socket?.end();
  }
}

export interface CallOptions {
  host: string;
  port: number;
  /** Seconds for all of the exchange. */
  timeout: number;
  signal: AbortSignal;
}

/**
 * The client's side. `ready` connects the queue pair to the server's address; the server hears `done` only
 * after that, and sends nothing before it has received a message.
 */
export async function callExchange(
  { host, port, timeout, signal }: CallOptions,
  local: PingpongAddress,
  ready: (remote: PingpongAddress) => Promise<void>,
): Promise<void> {
  const socket = connect({ host, port });
  const within = withTimeout(signal, timeout);
  try {
    await once(socket, 'connect', { signal: within });
    socket.on('error', () => {});
    socket.setNoDelay(true);
    socket.write(encodeAddress(local));
    await ready(decodeAddress(await read(socket, MESSAGE_BYTES, within)));
    socket.end(DONE);
  } catch (error) {
    socket.destroy();
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') {
      throw new RoceError(
        'ERR_ROCE_EXCHANGE',
        `nobody listens at TCP port ${port} of ${host}: start 'roce pingpong' or 'ibv_rc_pingpong -g INDEX' there first`,
        { errno: 'EIO', cause: error },
      );
    }
    throw explained(error, signal, 'the server', timeout);
  }
}

const withTimeout = (signal: AbortSignal, seconds: number) =>
  AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(seconds * 1000))]);

/** A time-out in words; an abort by the user and all other errors as they are. */
function explained(error: unknown, signal: AbortSignal, peer: string, timeout: number): unknown {
  if ((error as Error).name !== 'AbortError' || signal.aborted) return error;
  return new RoceError('ERR_ROCE_TIMEOUT', `${peer} was silent for ${timeout} s`, { errno: 'EIO' });
}
