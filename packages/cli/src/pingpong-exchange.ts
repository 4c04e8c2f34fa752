/**
 * The TCP exchange of ibv_rc_pingpong: 52 bytes `lid:qpn:psn:gid` in hexadecimal with a NUL. The client
 * writes, the server connects its queue pair and answers, the client says `done`.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { RoceError } from '@node-roce/verbs-api';

export interface PingpongAddress {
  lid: number;
  qpNum: number;
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

/** Throws ERR_ROCE_EXCHANGE for anything else than what the tool writes. */
export function decodeAddress(message: Buffer): PingpongAddress {
  const text = message.toString('latin1');
  const match = /^([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0$/i.exec(text);
  if (!match) {
    throw broken(
      `the peer sent ${JSON.stringify(text.slice(0, 60))}, which is no address of ibv_rc_pingpong`,
    );
  }
  const [, lid, qpn, psn, gid] = match;
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
    if (chunk && chunk.length === bytes) return chunk;
    if (chunk || socket.readableEnded || socket.destroyed)
      throw broken('the peer closed the connection early');
    // 'end' does not come before what is buffered has been read.
    const ended = once(socket, 'end', { signal });
    await Promise.race([once(socket, 'readable', { signal }), ended]);
    ended.catch(() => {});
  }
}

/** The server's side: waits for a client. `answer` connects the queue pair and tells our address. */
export async function serveExchange(
  { port, signal }: { port: number; signal: AbortSignal },
  answer: (remote: PingpongAddress, localAddress: string) => Promise<PingpongAddress>,
): Promise<Socket> {
  const server = createServer();
  try {
    server.listen(port);
    const [socket] = (await once(server, 'connection', { signal })) as [Socket];
    socket.setNoDelay(true);
    const remote = decodeAddress(await read(socket, MESSAGE_BYTES, signal));
    const local = await answer(remote, socket.localAddress ?? '');
    socket.write(encodeAddress(local));
    await read(socket, DONE.length, signal);
    return socket;
  } finally {
    server.close();
  }
}

/** The client's side. */
export async function clientExchange(
  { host, port, signal }: { host: string; port: number; signal: AbortSignal },
  local: PingpongAddress,
): Promise<{ socket: Socket; remote: PingpongAddress; done: () => void }> {
  const socket = connect({ host, port });
  await once(socket, 'connect', { signal });
  socket.setNoDelay(true);
  socket.write(encodeAddress(local));
  const remote = decodeAddress(await read(socket, MESSAGE_BYTES, signal));
  return { socket, remote, done: () => socket.write(DONE) };
}
