/** The npm package raw-socket: somebody else's addon, for packets with their IP headers. Needs root. */
import { spawnSync } from 'node:child_process';
import { existsSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
// @ts-expect-error: plain JavaScript
import { nodeDir } from '../../../scripts/node-dir.mjs';

const root = join(import.meta.dirname, '../../..');
const require = createRequire(import.meta.url);

/** The parts of it that are used. */
interface RawSocketModule {
  createSocket(options: { protocol: number; bufferSize: number }): RawSocket;
  Protocol: { UDP: number };
  SocketLevel: { IPPROTO_IP: number };
  SocketOption: { IP_HDRINCL: number };
}

interface RawSocket {
  on(event: 'message', listener: (packet: Buffer) => void): void;
  on(event: 'error', listener: (error: Error) => void): void;
  setOption(level: number, option: number, value: number): void;
  send(packet: Buffer, at: number, length: number, to: string, done: (error: Error | null) => void): void;
  close(): void;
}

/** Builds its addon, which pnpm does not (pnpm-workspace.yaml), unless that was done; then loads it. */
function load(): RawSocketModule {
  const folder = realpathSync(join(root, 'node_modules/raw-socket'));
  if (!existsSync(join(folder, 'build/Release/raw.node'))) {
    const gyp = createRequire(join(root, 'native/package.json')).resolve('node-gyp/bin/node-gyp.js');
    const headers = nodeDir();
    const args = [gyp, 'rebuild', ...(headers === undefined ? [] : [`--nodedir=${headers}`])];
    const { status, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
    if (status !== 0) throw new Error(`raw-socket did not build: ${stderr}`);
  }
  return require('raw-socket');
}

/** A raw socket for UDP that sends whole IPv4 packets, and gets a copy of each that the host receives. */
export function openRawSocket(onPacket: (packet: Uint8Array) => void) {
  const raw = load();
  const socket = raw.createSocket({ protocol: raw.Protocol.UDP, bufferSize: 65_536 });
  const errors: Error[] = [];
  socket.on('error', (error) => errors.push(error));
  socket.on('message', (packet) => onPacket(Uint8Array.from(packet)));
  socket.setOption(raw.SocketLevel.IPPROTO_IP, raw.SocketOption.IP_HDRINCL, 1);
  return {
    errors,
    send: (packet: Uint8Array, to: string) =>
      new Promise<void>((resolve, reject) => {
        const done = (error: Error | null) => (error ? reject(error) : resolve());
        socket.send(Buffer.from(packet), 0, packet.length, to, done);
      }),
    close: () => socket.close(),
  };
}
