/** The status of devices that run, asked over their sockets. */
import { existsSync, readdirSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Device } from '@node-roce/verbs-api';
import { CALLS, HEADER_BYTES, MAX_PAYLOAD } from './messages.ts';
import { message } from './protocol.ts';
import { isPrivate, socketFolder, socketSuffix } from './sockets.ts';

/** A device that runs, as `roce devinfo` shows it. */
export interface DeviceStatus {
  /** Its address, or the name of the interface whose addresses it has. */
  address: string;
  /** The number of its network namespace, as in `/proc/self/ns/net`. */
  network: string;
  /** Each with its name and process, and how many objects it has. A process may have several connections. */
  programs: { name: string; objects: number }[];
  /** Over all queue pairs, also those that are gone (docs/counters.md). */
  counters: Awaited<ReturnType<Device['counters']>>;
}

/** How long a device whose status is asked for may take to answer, in milliseconds. */
const ANSWER_MS = 5_000;

/** Milliseconds without an answer after which somebody is told what is waited for. */
const SILENCE_MS = 5_000;

/** A connection to a device that has answered on it: `roce device --idle` stays for as long as it is open. */
export interface HeldDevice {
  socket: Socket;
  status: DeviceStatus;
}

/**
 * Connects to the device at this socket; undefined where none answers. A device that ends at this moment may take the connection, and does not answer.
 *
 * @param signal ends the wait for an answer
 * @param onSilence called if the connection is accepted, but nothing answers for some seconds
 * @throws the signal's reason, once it is aborted
 */
export async function holdDevice(
  path: string,
  signal: AbortSignal,
  onSilence = (): void => {},
): Promise<HeldDevice | undefined> {
  signal.throwIfAborted();
  const socket = connect(path).on('error', () => {});
  const abandon = () => void socket.destroy();
  signal.addEventListener('abort', abandon, { once: true });
  let silence: NodeJS.Timeout | undefined;
  socket.once('connect', () => {
    silence = setTimeout(onSilence, SILENCE_MS);
  });
  const status = await statusOver(socket);
  clearTimeout(silence);
  signal.removeEventListener('abort', abandon);
  if (status !== undefined) return { socket, status };
  socket.destroy();
  signal.throwIfAborted();
  return undefined;
}

/** Asks the device at this socket; undefined where none answers soon. */
export async function deviceStatus(path: string): Promise<DeviceStatus | undefined> {
  const held = await holdDevice(path, AbortSignal.timeout(ANSWER_MS)).catch(() => undefined);
  held?.socket.destroy();
  return held?.status;
}

async function statusOver(socket: Socket): Promise<DeviceStatus | undefined> {
  socket.write(message(CALLS.STATUS.number));
  let reply = Buffer.alloc(0);
  try {
    for await (const data of socket.iterator({ destroyOnReturn: false })) {
      reply = Buffer.concat([reply, data]);
      if (reply.length < HEADER_BYTES) continue;
      const length = reply.readUInt32LE(0);
      if (length > MAX_PAYLOAD) return undefined;
      if (reply.length < HEADER_BYTES + length) continue;
      const status = JSON.parse(reply.toString('utf8', HEADER_BYTES, HEADER_BYTES + length));
      // Another program's socket says anything.
      return typeof status?.network === 'string' ? (status as DeviceStatus) : undefined;
    }
    return undefined;
  } catch {
    return undefined;
  }
}

/** This user's devices in this network namespace whose sockets are where `roce run` looks, by their sockets. */
export async function runningDevices(
  env: NodeJS.ProcessEnv = process.env,
): Promise<Map<string, DeviceStatus>> {
  const folder = socketFolder(env);
  const found = new Map<string, DeviceStatus>();
  if (!existsSync(folder) || !isPrivate(folder)) return found;
  for (const name of readdirSync(folder).sort()) {
    if (!name.endsWith(socketSuffix())) continue;
    const path = join(folder, name);
    const status = await deviceStatus(path);
    if (status) found.set(path, status);
  }
  return found;
}
