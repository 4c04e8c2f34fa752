/** The device that programs reach over a Unix socket: one engine, a context of it for each program. */
import { timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { constants } from 'node:os';
import { dirname } from 'node:path';
import { Doorbells, peerProcess, sendDescriptor } from '@node-roce/dgram-native';
import {
  listInterfaces,
  type NetworkInterface,
  type SocketLinkKind,
  type SocketLinkOptions,
} from '@node-roce/link';
import { type Device, openDevice, RoceError } from '@node-roce/verbs-api';
import { ARENA_BYTES } from './arena.ts';
import { defaultInterface } from './launch.ts';
import { ProgramMemory } from './memory.ts';
import { CALL_NAMES, HEADER_BYTES, MAX_PAYLOAD, PROTOCOL_VERSION, type Request } from './messages.ts';
import { Program } from './program.ts';
import { decodeRequest, Failed, Malformed, message, refusal, replyTo } from './protocol.ts';
import { isListening, networkNamespace, prepareFolder, socketPath } from './sockets.ts';
import type { DeviceStatus } from './status.ts';
import { SystemFiles } from './system-files.ts';
import type { Channel } from './ucma/channel.ts';
import { UcmaManager } from './ucma/manager.ts';

export interface DeviceOptions {
  /** The one address of the device: one of this machine's. UDP port 4791 of it is taken. Default: all addresses of the interface. */
  address?: string;
  /** The interface of the device, without an address. Default `defaultInterface()`. */
  interface?: string;
  /** Where the Unix socket is made. Default `socketPath(address)`, or of the interface's name. */
  path?: string;
  /** Writes every packet of the device into this pcapng file. Default: none. */
  trace?: string;
  /** Its link, and the mode of `xdp`: as `openDevice` takes them. */
  link?: SocketLinkKind;
  xdpMode?: SocketLinkOptions['xdpMode'];
  /** How its connections recover from losses, as `openDevice` takes it. */
  recovery?: { probes?: boolean };
  /** Takes a line for each program that comes, goes or breaks a rule. Default: nothing is logged. */
  log?: (line: string) => void;
}

/** Events of one descriptor that wait for a program that does not read, in bytes: more, and the program is at an end. */
const MAX_WAITING = 1 << 20;
/** Codes of errors of a socket whose other end is gone. */
const GONE = new Set<string | undefined>(['ECONNRESET', 'EPIPE', 'ERR_STREAM_PREMATURE_CLOSE']);
/** Written to an event channel of librdmacm whose queue has events. */
const SIGNAL = Buffer.alloc(1);
/** Connections at most: of programs, and one for each channel. */
const MAX_CONNECTIONS = 4096;

/** The descriptor of a socket: Node has no public name for it. */
const descriptorOf = (socket: Socket): number =>
  (socket as unknown as { _handle?: { fd?: number } })._handle?.fd ?? -1;

function interfaceNamed(name: string): NetworkInterface {
  const nic = listInterfaces().find((one) => one.name === name);
  if (nic) return nic;
  throw Object.assign(new Error(`${name}: no such interface, or it has no address`), { code: 'ENODEV' });
}

function interfaceOf(address: string): NetworkInterface {
  const found = listInterfaces().find((nic) => nic.addresses.some((a) => a.address === address));
  // Any address of 127.0.0.0/8 is the loopback's.
  const nic = found ?? listInterfaces().find(({ name }) => name === 'lo' && address.startsWith('127.'));
  if (nic) return nic;
  throw Object.assign(new Error(`no interface of this machine has the address ${address}`), {
    code: 'EADDRNOTAVAIL',
  });
}

/** A device that listens. */
export class DeviceServer {
  readonly path: string;
  /** Its address, or the name of the interface whose addresses it has. */
  readonly address: string;
  readonly #server: Server;
  readonly #files: SystemFiles;
  readonly #device: Device;
  readonly #open: (memory?: ProgramMemory) => Promise<Program>;
  readonly #log: (line: string) => void;
  readonly #programs = new Set<Program>();
  /** The connection manager for librdmacm. */
  readonly #ucma: UcmaManager;
  readonly #network = networkNamespace();
  readonly #connections = new Set<Promise<void>>();
  readonly #sockets = new Set<Socket>();
  /** Where the events of a channel, or of a context, go: the last connection that listened. */
  readonly #listeners = new WeakMap<object, { socket: Socket; replaced: () => void }>();
  /** A descriptor for each program. All share an engine, which looks at every program's doorbells. */
  readonly #doorbells = new Doorbells(() => {
    for (const program of this.#programs) return program.wake();
  });

  private constructor(
    options: { address: string; path: string; log: (line: string) => void },
    server: Server,
    device: Device,
    files: SystemFiles,
    open: (memory?: ProgramMemory) => Promise<Program>,
  ) {
    this.path = options.path;
    this.address = options.address;
    this.#log = options.log;
    this.#server = server;
    this.#device = device;
    this.#ucma = new UcmaManager(device);
    this.#files = files;
    this.#open = open;
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      const served = this.#serve(socket).finally(() => {
        this.#sockets.delete(socket);
        this.#connections.delete(served);
      });
      this.#connections.add(served);
    });
  }

  /**
   * Opens the device and listens.
   *
   * @throws a RoceError with errno EADDRINUSE where UDP port 4791 is taken, EADDRNOTAVAIL for an address of no interface; an
   *   Error with `code` EADDRINUSE where a device answers at the path
   */
  static async listen({
    address,
    interface: name = defaultInterface(),
    path = socketPath(address ?? name),
    log = () => {},
    ...open
  }: DeviceOptions): Promise<DeviceServer> {
    const nic = address === undefined ? interfaceNamed(name) : interfaceOf(address);
    const options = { ...(address === undefined ? { interface: nic.name } : { address }), ...open };
    // Throws where the size of files is limited.
    new ProgramMemory().retain().release();
    prepareFolder(dirname(path));
    if (await isListening(path))
      throw Object.assign(new Error(`${path}: a device answers there already`), { code: 'EADDRINUSE' });
    // Stays open, so that the sockets stay.
    const first = await openDevice(options);
    let opened = Promise.resolve(first);
    /** A context of it; after a failure of its own, of a device that is opened anew. */
    const openContext = async () => {
      const before = opened;
      if ((await before).closed && opened === before) opened = openDevice(options);
      return (await opened).openContext();
    };
    rmSync(path, { force: true });
    const files = new SystemFiles(path);
    const server = createServer();
    server.maxConnections = MAX_CONNECTIONS;
    try {
      // First: a program may come as soon as the socket is there.
      await files.refresh(first);
      server.listen(path);
      await once(server, 'listening');
    } catch (error) {
      files.remove();
      await first.close();
      throw error;
    }
    chmodSync(path, 0o600);
    const program = async (memory = new ProgramMemory()) => {
      // The program that has it may end meanwhile.
      memory.retain();
      try {
        const context = await openContext();
        try {
          return new Program(context, memory);
        } catch (error) {
          await context.close();
          throw error;
        }
      } finally {
        memory.release();
      }
    };
    return new DeviceServer({ address: address ?? name, path, log }, server, first, files, program);
  }

  /** Programs that are connected, and the objects of all. */
  get status(): { programs: number; objects: number } {
    return {
      programs: this.#programs.size,
      objects: [...this.#programs].reduce((sum, { objects }) => sum + objects, 0),
    };
  }

  /** Ids that programs have of the connection manager, and those of them that listen. */
  get ids(): { ids: number; listening: number } {
    const { size, listening } = this.#ucma;
    return { ids: size, listening };
  }

  /** Returns what `roce devinfo` shows of it. */
  async report(): Promise<DeviceStatus> {
    const programs = [...this.#programs].map(({ name, objects }) => ({ name, objects }));
    const counters = await this.#device.counters();
    return { address: this.address, network: `${this.#network}`, programs, counters };
  }

  /** Connections: of programs, of their events, and of `roce run` for a program that has not come yet. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** Ends all programs' objects and the device. */
  async close(): Promise<void> {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(this.#connections);
    this.#doorbells.close();
    rmSync(this.path, { force: true });
    this.#files.remove();
    await this.#device.close().catch(unlessRefused);
  }

  async #serve(socket: Socket): Promise<void> {
    socket.on('error', () => {});
    let program: Program | undefined;
    let listens = false;
    let channel: Channel | undefined;
    try {
      for await (const { call, payload } of messages(socket)) {
        const name = CALL_NAMES[call];
        if (program && name === 'CLOSE') {
          decodeRequest(name, payload);
          // First: the program takes its memory back once it has the reply.
          await this.#end(program);
          await send(socket, replyTo(name, {}));
          break;
        } else if (program) {
          await send(socket, await program.call(call, payload));
        } else if (name === 'HELLO' && !listens) {
          program = await this.#hello(socket, decodeRequest(name, payload));
          if (!program) break;
        } else if (name === 'STATUS' && !listens) {
          decodeRequest(name, payload);
          await send(socket, message(0, Buffer.from(JSON.stringify(await this.report()))));
        } else if (name === 'LISTEN') {
          if (listens) throw new Malformed('LISTEN for the second time');
          listens = true;
          await this.#listenFor(socket, decodeRequest(name, payload));
        } else if (name === 'UCMA_COMMAND' && !listens) {
          await send(socket, await this.#ucma.command(decodeRequest(name, payload)));
        } else if (name === 'UCMA_OPEN' && !listens) {
          listens = true;
          const { network, version } = decodeRequest(name, payload);
          if (version !== PROTOCOL_VERSION) throw new Malformed(`version ${version} of the library`);
          if (!(await this.#isHere(socket, network))) break;
          channel = this.#ucma.open(() => socket.write(SIGNAL));
          await send(socket, replyTo(name, { token: channel.token }));
        } else throw new Malformed(`call ${call} before HELLO`);
      }
    } catch (error) {
      if (error instanceof Malformed)
        this.#log(`${program?.name ?? 'a program'}: broke the protocol: ${error.message}`);
      else if (!GONE.has((error as NodeJS.ErrnoException).code))
        this.#log(`${program?.name ?? 'a program'}: ended by a fault here: ${(error as Error).stack}`);
    } finally {
      socket.destroy();
      if (channel) await this.#ucma.close(channel);
      if (program) await this.#end(program);
    }
  }

  /** @returns undefined for a program of another network namespace, which is refused */
  async #hello(socket: Socket, request: Request<'HELLO'>): Promise<Program | undefined> {
    const { version, token, network } = request;
    const name = Buffer.from(request.name)
      .toString('latin1')
      .replaceAll(/[^\x20-\x7e]/g, '');
    const pid = peerProcess(descriptorOf(socket));
    if (version !== PROTOCOL_VERSION) throw new Malformed(`version ${version} of the library`);
    if (!(await this.#isHere(socket, network))) {
      this.#log(`${name} (process ${pid}): refused: it is in another network namespace`);
      return undefined;
    }
    await this.#files.refresh(this.#device);
    const program = await this.#open(this.#find(token)?.memory);
    program.name = `${name} (process ${pid})`;
    program.pid = pid;
    program.onOverfull = () => {
      if (!socket.destroyed) this.#log(`${program.name}: broke the protocol: an overfull ring`);
      socket.destroy();
    };
    this.#programs.add(program);
    const { memory, rings } = program;
    try {
      if (socket.destroyed) throw Object.assign(new Error('gone before the answer'), { code: 'ECONNRESET' });
      program.doorbell = this.#doorbells.add();
      for (const fd of [memory.fd, rings.arena.fd, program.doorbell, program.memoryEnd])
        sendDescriptor(descriptorOf(socket), fd);
      const { offset, capacity } = rings.doorbells;
      const shape = { arena_bytes: ARENA_BYTES, bells_offset: offset, bells_capacity: capacity };
      await send(socket, replyTo('HELLO', { token: program.token, ...shape }));
    } catch (error) {
      // A program that takes no descriptors is gone before it has the answer.
      await this.#end(program);
      throw error;
    }
    this.#log(`${program.name}: connected`);
    return program;
  }

  /** Whether a program's network namespace is this one's: its packets would leave by interfaces that it does not have. One of another gets EXDEV. */
  async #isHere(socket: Socket, network: bigint): Promise<boolean> {
    if (network === 0n || this.#network === 0n || network === this.#network) return true;
    await send(socket, refusal(new Failed(constants.errno.EXDEV, 'another network namespace')));
    return false;
  }

  async #end(program: Program): Promise<void> {
    if (!this.#programs.delete(program)) return;
    const { objects, doorbell } = program;
    if (doorbell !== undefined) this.#doorbells.remove(doorbell);
    await program.close();
    this.#log(`${program.name}: gone${objects > 0 ? `, with ${objects} objects` : ''}`);
  }

  #find(token: Uint8Array): Program | undefined {
    return [...this.#programs].find((one) => timingSafeEqual(one.token, token));
  }

  /** A connection for events: of a channel, or of the context (handle 0). */
  async #listenFor(socket: Socket, { token, handle }: Request<'LISTEN'>): Promise<void> {
    const program = this.#find(token);
    const channel = handle === 0 ? undefined : program?.channel(handle);
    if (!program || (handle !== 0 && !channel)) throw new Malformed('LISTEN for what is not there');
    await send(socket, replyTo('LISTEN', {}));
    const before = this.#listeners.get(channel ?? program);
    if (before) {
      before.socket.destroy();
      before.socket = socket;
      before.replaced();
      return;
    }
    const listener = { socket, replaced: () => {} };
    this.#listeners.set(channel ?? program, listener);
    const next = channel ? () => program.nextCompletionEvent(channel) : () => program.nextAsyncEvent();
    const pass = async () => {
      for (let event = await next(); event; event = await next()) {
        // The event is for the next one who listens.
        while (listener.socket.destroyed)
          await new Promise<void>((resolve) => {
            listener.replaced = resolve;
          });
        listener.socket.write(event);
        if (listener.socket.writableLength > MAX_WAITING) listener.socket.destroy();
      }
    };
    pass()
      .catch((error: Error) => this.#log(`${program.name}: ended by a fault here: ${error.stack}`))
      .finally(() => listener.socket.destroy());
  }
}

/** A trace that could not be written, for example: the device ends all the same. */
function unlessRefused(error: unknown): void {
  if (!(error instanceof RoceError)) throw error;
}

async function send(socket: Socket, message: Buffer): Promise<void> {
  if (!socket.write(message) && !socket.destroyed)
    await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
}

/** The messages that arrive; the next one is read when the one before is done. */
async function* messages(socket: Socket): AsyncGenerator<{ call: number; payload: Buffer }> {
  let rest = Buffer.alloc(0);
  for await (const data of socket) {
    rest = rest.length === 0 ? data : Buffer.concat([rest, data]);
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32LE(0);
      if (length > MAX_PAYLOAD) throw new Malformed(`a payload of ${length} bytes`);
      if (rest.length < HEADER_BYTES + length) break;
      const payload = rest.subarray(HEADER_BYTES, HEADER_BYTES + length);
      const call = rest.readUInt32LE(4);
      rest = rest.subarray(HEADER_BYTES + length);
      yield { call, payload };
    }
  }
}
