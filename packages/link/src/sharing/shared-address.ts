/**
 * One address and UDP port for several devices, of one process or of several (docs/sharing.md): a socket for each place, and one for
 * queue pair 1. Every device holds all of them, so none changes its index in the kernel's group while one device is left.
 */
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Descriptors, LocalSocket, Socket, type SocketOptions } from '@node-roce/dgram-native';
import { RoceError } from '@node-roce/transport';
import { GSI_QPN } from '@node-roce/wire';
import { explainDescriptors, withDescriptors } from '../descriptors.ts';
import { bindError } from '../local-sockets.ts';
import type { MadTarget } from './mad-target.ts';

/** Devices that can share an address: the QPNs of each are its place modulo this. A power of two. */
export const PLACES = 32;

const { ECONNREFUSED } = constants.errno;

/** The first byte of a message between devices. */
export const Message = {
  /** A newcomer asks for the sockets; its place follows. */
  ASK: 0,
  /** They come with it. */
  SOCKETS: 1,
  /** Packets that arrived elsewhere. */
  PACKETS: 2,
} as const;

/** How long a newcomer waits for those who open or have the address, ms: their event loops may be busy. */
const PATIENCE_MS = 5_000;
/** How long after a process died its sockets may be there still, ms. */
const BURIAL_MS = 500;
/** How often it looks, and after how many looks it asks another one. */
const LOOK_MS = 2;
const LOOKS = 10;

/** Classic BPF (linux/bpf_common.h): the destination QPN, which stands in the last three bytes of the BTH's second word, to an index. */
const STEERING = Uint32Array.from([
  ...[0x20, 4], // A = the 32-bit word at byte 4
  ...[0x54, 0xff_ffff], // A &= 0xffffff
  ...[0x15 | (1 << 24), GSI_QPN], // if A ≠ 1, skip one
  ...[0x06, PLACES], // return the socket of queue pair 1
  ...[0x54, PLACES - 1], // A &= 31
  ...[0x16, 0], // return A
]);

/** Where the sockets are bound, and how they are set up. */
export type Binding = Omit<SocketOptions, 'descriptor' | 'reusePort'> & { gid: string };

/** Names belong to the network namespace, as ports do; versions that do not understand each other have different ones. */
function nameOf({ gid, port, multicastInterface }: Binding): string {
  return `node-roce-1/${process.geteuid?.()}/${port}/${gid}%${multicastInterface}`;
}

/** Opens a local socket; undefined where another one has the name. */
function tryOpen(name: string): LocalSocket | undefined {
  try {
    return withDescriptors(() => new LocalSocket(name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined;
    throw error;
  }
}

/**
 * Takes a place at each of the addresses, the same at all.
 * Rejects with RoceError: EADDRINUSE where a program has the port for itself, or where there is no place left.
 */
export async function joinAddresses(bindings: readonly Binding[]): Promise<SharedAddress[]> {
  const doors: LocalSocket[] = [];
  const joined: SharedAddress[] = [];
  let mailboxes: readonly LocalSocket[] = [];
  try {
    // One newcomer at a time: who is inside has all sockets. In one order, lest two wait for each other.
    const names = bindings.map(nameOf).sort();
    for (const name of names) doors.push(await waitFor(`${name}/door`));
    const taken = takePlace(bindings);
    const { place } = taken;
    mailboxes = taken.mailboxes;
    for (const [i, binding] of bindings.entries()) {
      const mailbox = mailboxes[i];
      mailbox.allowDescriptors(true);
      const asked = await askForSockets(binding, place, mailbox);
      mailbox.allowDescriptors(false);
      const descriptors = asked ?? (await createSockets(binding));
      joined.push(new SharedAddress(binding, place, mailbox, descriptors, asked === undefined));
    }
    return joined;
  } catch (error) {
    for (const shared of joined) shared.close();
    for (const mailbox of mailboxes.slice(joined.length)) mailbox.close();
    throw error;
  } finally {
    for (const door of doors) door.close();
  }
}

async function waitFor(name: string): Promise<LocalSocket> {
  for (const start = Date.now(); Date.now() - start < PATIENCE_MS; await sleep(LOOK_MS)) {
    const socket = tryOpen(name);
    if (socket) return socket;
  }
  throw silence();
}

function silence(): RoceError {
  return new RoceError('ERR_ROCE_TIMEOUT', 'the programs that share the address do not answer', {
    errno: 'ETIMEDOUT',
    attribute: 'shared',
    expected: 'programs with shared: true that do not block their event loop, or that use engine: worker',
  });
}

/** The first place that is free at all of the addresses. */
function takePlace(bindings: readonly Binding[]): { place: number; mailboxes: LocalSocket[] } {
  for (let place = 0; place < PLACES; place++) {
    const mailboxes: LocalSocket[] = [];
    for (const binding of bindings) {
      const mailbox = tryOpen(`${nameOf(binding)}/${place}`);
      if (!mailbox) break;
      mailboxes.push(mailbox);
    }
    if (mailboxes.length === bindings.length) return { place, mailboxes };
    for (const mailbox of mailboxes) mailbox.close();
  }
  throw new RoceError('ERR_ROCE_PORT_IN_USE', `${PLACES} devices share the address`, {
    errno: 'EADDRINUSE',
    attribute: 'shared',
    expected: 'fewer devices, or another address',
  });
}

/** The sockets from one of those who have them, one after the other; undefined where nobody is left. */
async function askForSockets(
  binding: Binding,
  place: number,
  mailbox: LocalSocket,
): Promise<Descriptors | undefined> {
  const bytes = new Uint8Array(16);
  const start = Date.now();
  for (let from = place + 1; ; ) {
    const asked = askNext(nameOf(binding), place, mailbox, from);
    if (asked === undefined) return undefined;
    from = asked + 1;
    for (let look = 0; look < LOOKS; look++) {
      await sleep(LOOK_MS);
      for (let message = mailbox.receive(bytes); message; message = mailbox.receive(bytes)) {
        const descriptors = new Descriptors(message.descriptors);
        const isAnswer = bytes[0] === Message.SOCKETS && message.uid === process.geteuid?.();
        if (isAnswer && message.descriptors.length === PLACES + 1) return descriptors;
        descriptors.close();
        // The kernel leaves those out for which the process has no room (unix(7)).
        if (isAnswer) throw explainDescriptors({ code: 'EMFILE' });
      }
    }
    if (Date.now() - start > PATIENCE_MS) throw silence();
  }
}

/** Asks the next one, in the order of places. Returns its place, undefined where nobody is. */
function askNext(name: string, place: number, mailbox: LocalSocket, from: number): number | undefined {
  for (let i = 0; i < PLACES; i++) {
    const other = (from + i) % PLACES;
    if (other === place) continue;
    const errno = mailbox.send(`${name}/${other}`, Uint8Array.of(Message.ASK, place));
    if (errno !== ECONNREFUSED) return other;
  }
  return undefined;
}

/** Opens the sockets, in the order of places: the kernel's index of each is its place. */
async function createSockets(binding: Binding): Promise<Descriptors> {
  await expectFree(binding);
  const { gid: _, ...options } = binding;
  const sockets: Socket[] = [];
  const duplicates: number[] = [];
  try {
    for (let place = 0; place <= PLACES; place++) {
      const socket = new Socket({ ...options, reusePort: true });
      sockets.push(socket);
      // Nobody reads from it yet.
      if (place < PLACES) socket.mute(true);
    }
    sockets[0].steer(STEERING);
    for (const socket of sockets) duplicates.push(socket.duplicate());
    return new Descriptors(duplicates);
  } catch (error) {
    new Descriptors(duplicates).close();
    throw explainDescriptors(explain(error, binding));
  } finally {
    for (const socket of sockets) socket.close();
  }
}

/** A socket that is left over would have the first index. */
async function expectFree(binding: Binding): Promise<void> {
  const { gid: _, ...options } = binding;
  for (const start = Date.now(); ; await sleep(LOOK_MS)) {
    try {
      new Socket(options).close();
      return;
    } catch (error) {
      const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
      if (!isTaken || Date.now() - start > BURIAL_MS) throw explain(error, binding);
    }
  }
}

const explain = (error: unknown, { address, family, port }: Binding): unknown =>
  bindError(error, address, family, port);

/** A device's part in an address that is shared. */
export class SharedAddress {
  readonly place: number;
  /** The socket of the place, and that of queue pair 1, which all devices read. */
  readonly own: Socket;
  readonly management: Socket;
  readonly mailbox: LocalSocket;
  /** No other device has had the sockets. */
  isAlone: boolean;
  readonly #name: string;
  /** They end with the thread, too: a thread that dies would keep the address until its process ends. */
  readonly #descriptors: Descriptors;
  /** A mailbox for each service that the device listens to. */
  readonly #services = new Map<bigint, LocalSocket>();

  /** @param descriptors all sockets of the address; closed with this object @param isFirst they are new ones */
  constructor(
    binding: Binding,
    place: number,
    mailbox: LocalSocket,
    descriptors: Descriptors,
    isFirst: boolean,
  ) {
    this.isAlone = isFirst;
    this.#name = nameOf(binding);
    this.#descriptors = descriptors;
    this.place = place;
    this.mailbox = mailbox;
    const { gid: _, ...options } = binding;
    const numbers = descriptors.list();
    let own: Socket | undefined;
    try {
      own = new Socket({ ...options, descriptor: numbers[place] });
      this.own = own;
      this.management = new Socket({ ...options, descriptor: numbers[PLACES] });
    } catch (error) {
      own?.close();
      descriptors.close();
      throw explainDescriptors(error);
    }
    this.own.mute(false);
  }

  /** The mailboxes that messages to this device come to. */
  *mailboxes(): Generator<LocalSocket> {
    yield this.mailbox;
    yield* this.#services.values();
  }

  /** The name of the mailbox of a device; undefined for this device. */
  nameFor(target: Exclude<MadTarget, 'all'>): string | undefined {
    if ('service' in target)
      return this.#services.has(target.service) ? undefined : this.#serviceName(target.service);
    const place = target.number % PLACES;
    return place === this.place ? undefined : `${this.#name}/${place}`;
  }

  #serviceName(service: bigint): string {
    return `${this.#name}/service/${service.toString(16)}`;
  }

  /** Sends a message. Returns 0 or an errno: ECONNREFUSED where there is no such device. */
  send(name: string, bytes: Uint8Array): number {
    return this.mailbox.send(name, bytes);
  }

  /** Gives the sockets to a newcomer. */
  welcome(place: number): void {
    const { mailbox } = this;
    this.isAlone = false;
    mailbox.send(`${this.#name}/${place % PLACES}`, Uint8Array.of(Message.SOCKETS), this.#descriptors.list());
  }

  /** Opens the mailbox of a service; undefined where another device listens to it. */
  claim(service: bigint): LocalSocket | undefined {
    const mailbox = tryOpen(this.#serviceName(service));
    if (mailbox) this.#services.set(service, mailbox);
    return mailbox;
  }

  /** Gives a service up. Returns its mailbox, closed by the caller. */
  release(service: bigint): LocalSocket | undefined {
    const mailbox = this.#services.get(service);
    this.#services.delete(service);
    return mailbox;
  }

  close(): void {
    // Nobody reads from it until the place is taken again.
    this.own.mute(true);
    for (const socket of [this.own, this.management, ...this.mailboxes()]) socket.close();
    this.#descriptors.close();
  }
}
