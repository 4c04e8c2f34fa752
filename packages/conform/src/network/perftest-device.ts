/**
 * A device without an agent, next to which perftest's servers run in loops: their dialogue over TCP gives a queue pair, a key and an
 * address, and each right has its program. They serve one connection, and end with it.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gidFromText } from '@node-roce/wire';
import {
  type ConnectionSpec,
  type Device,
  type DeviceConnection,
  type Right,
  Untestable,
} from '../device.ts';
import { SERVED } from '../needs.ts';

/** A right that a server of perftest can allow. */
type ServedRight = Exclude<Right, 'flush'>;

/** Programs, each at the port so far behind the first. */
const PROGRAMS: Readonly<Record<ServedRight, { name: string; offset: number }>> = {
  write: { name: 'ib_write_bw', offset: 0 },
  read: { name: 'ib_read_bw', offset: 1 },
  atomic: { name: 'ib_atomic_bw', offset: 2 },
};

/** The port of the first server. */
const PERFTEST_PORT = 18_515;

/** Tries to reach a server, and one that has just ended and is started again; ms between two. */
const TRIES = { first: 8, again: 120 } as const;
const PAUSE = 250;
/** ms that an answer may take. */
const PATIENCE = 10_000;
/** Bytes that a server may send ahead: the whole dialogue has fewer. */
const MOST_AHEAD = 4096;

/** The version of Debian 12's, which newer ones take, too, and which compares no parameters. */
const VERSION = '6.06';
const PAGE = 4096;
const CACHE_LINE = 64;
/** Bytes of the buffer behind the address in the key: perftest's default size. */
const REGION = 65_536;
const USUAL_MTU = 1024;

const hex = (value: number | bigint, digits: number): string => value.toString(16).padStart(digits, '0');
const KEY =
  /^[0-9a-f]{4}:[0-9a-f]{4}:([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{8}):([0-9a-f]{16}):(?:[0-9a-f]{2}:){16}[0-9a-f]{8}:\0$/i;

/** A dialogue: both sides send a message of the same size, the client first. */
class Dialogue {
  readonly #socket: Socket;
  #buffer = Buffer.alloc(0);
  #error: Error | undefined;
  #wake: () => void = () => {};

  constructor(socket: Socket) {
    this.#socket = socket.setNoDelay(true);
    socket.on('data', (data) => {
      this.#buffer = Buffer.concat([this.#buffer, data]);
      if (this.#buffer.length > MOST_AHEAD)
        socket.destroy(new Error('the server sends more than perftest does: is it perftest?'));
      this.#wake();
    });
    socket.on('error', (error) => this.#end(error));
    socket.on('close', () => this.#end(new Error('the perftest server is gone')));
  }

  #end(error: Error): void {
    this.#error ??= error;
    this.#wake();
  }

  async exchange(mine: Buffer): Promise<Buffer> {
    this.#socket.write(mine);
    const timer = setTimeout(
      () => this.#socket.destroy(new Error('the perftest server is silent')),
      PATIENCE,
    );
    while (this.#buffer.length < mine.length && this.#error === undefined) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    clearTimeout(timer);
    if (this.#buffer.length < mine.length) throw this.#error;
    const theirs = this.#buffer.subarray(0, mine.length);
    this.#buffer = this.#buffer.subarray(mine.length);
    return theirs;
  }

  close(): void {
    this.#socket.destroy();
  }
}

/** @returns undefined where nobody listens */
async function reach(host: string, port: number, tries: number): Promise<Socket | undefined> {
  for (let i = 0; i < tries; i++) {
    const socket = connect({ host, port });
    const timer = setTimeout(() => socket.destroy(new Error(`${host} port ${port}: no answer`)), PATIENCE);
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
      await sleep(PAUSE);
    } finally {
      clearTimeout(timer);
    }
  }
  return undefined;
}

const integer = (value: number): Buffer => {
  const field = Buffer.alloc(4);
  field.writeInt32BE(value);
  return field;
};

function keyOf({ address, qpn, psn, maxRdAtomic }: ConnectionSpec): Buffer {
  const gid = [...gidFromText(address)].map((byte) => hex(byte, 2)).join(':');
  const numbers = [hex(0, 4), hex(maxRdAtomic, 4), hex(qpn, 6), hex(psn, 6), hex(0, 8), hex(0, 16)];
  return Buffer.from(`${[...numbers, gid, hex(0, 8)].join(':')}:\0`, 'latin1');
}

/** The dialogue up to the point at which the server's queue pair is in RTS. */
async function converse(dialogue: Dialogue, spec: ConnectionSpec): Promise<DeviceConnection> {
  const version = Buffer.alloc(16);
  version.write(VERSION, 'latin1');
  await dialogue.exchange(version);
  await dialogue.exchange(integer(PAGE));
  await dialogue.exchange(integer(CACHE_LINE));
  await dialogue.exchange(Buffer.from(`${Math.log2(USUAL_MTU) - 7}\0`, 'latin1'));
  const mine = keyOf(spec);
  const theirs = (await dialogue.exchange(mine)).toString('latin1');
  const match = KEY.exec(theirs);
  if (match === null) throw new Error('the perftest server sent no key: is it perftest?');
  const [qpn, psn, rkey] = match.slice(1, 4).map((text) => Number.parseInt(text, 16));
  // Two barriers: both sides are connected, and begin.
  await dialogue.exchange(mine);
  await dialogue.exchange(mine);
  return { qpn, psn, rkey, va: BigInt(`0x${match[4]}`), close: async () => dialogue.close() };
}

/** A connection that perftest's servers have: their attributes, and one right. */
function rightOf({ service, uses, receives, size, pathMtu, state }: ConnectionSpec): ServedRight {
  if (service !== 'rc' || receives > 0 || size !== REGION || pathMtu !== USUAL_MTU || state !== 'RTS')
    throw new Untestable('a perftest server has no such connection');
  if (uses.length > 1) throw new Untestable('a perftest server has one right');
  const [right = 'write'] = uses;
  if (right === 'flush') throw new Untestable('perftest has no FLUSH');
  return right;
}

/** @param port of `ib_write_bw`; `ib_read_bw` and `ib_atomic_bw` are at the next ones */
export function perftestDevice(
  host: string,
  port = PERFTEST_PORT,
  tries: { first: number; again: number } = TRIES,
): Device {
  const seen = new Set<ServedRight>();
  const missing = new Set<ServedRight>();
  const open = async (spec: ConnectionSpec): Promise<DeviceConnection> => {
    const right = rightOf(spec);
    const { name, offset } = PROGRAMS[right];
    const socket = missing.has(right)
      ? undefined
      : await reach(host, port + offset, seen.has(right) ? tries.again : tries.first);
    if (socket === undefined) {
      // Nobody waits for it a second time.
      const isNew = !missing.has(right);
      missing.add(right);
      if (isNew && seen.has(right)) throw new Error(`${name} at port ${port + offset} is not started again`);
      const server = `${name} -F -p ${port + offset}`;
      throw new Untestable(`no ${name} at port ${port + offset}: run ${server} there, in a loop`);
    }
    seen.add(right);
    const dialogue = new Dialogue(socket);
    try {
      return await converse(dialogue, spec);
    } catch (error) {
      dialogue.close();
      throw error;
    }
  };
  return { info: { name: `perftest at ${host}` }, offers: new Set(SERVED.perftest), connect: open };
}
