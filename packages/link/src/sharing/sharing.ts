/** A device's part in sharing an address with other devices: packets that arrived at the wrong one are passed on. */
import { constants } from 'node:os';
import { Descriptors, type LocalSocket, type Port } from '@node-roce/dgram-native';
import {
  Icrc,
  NO_PEER,
  type ResidueClass,
  RoceError,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
} from '@node-roce/transport';
import { bthDestQp, GSI_QPN } from '@node-roce/wire';
import { madTarget } from './mad-target.ts';
import { Message, PLACES, type SharedAddress } from './shared-address.ts';

const { EAGAIN, ECONNREFUSED } = constants.errno;

const ICRC_BYTES = 4;
/** Before each packet of a message: its length with the ICRC, traffic class, hop limit, source port, source GID. */
const RECORD_HEAD = 22;
/** Bytes of a message: many packets in one, for a queue of the kernel may hold ten messages (net.unix.max_dgram_qlen). */
const MESSAGE_BYTES = 32_768;
/** Packets that wait for a device that does not read; more are lost. */
const MAX_WAITING = 1024;
/** Messages taken from a mailbox in one turn. */
const MAX_MESSAGES = 64;
/** How soon a full queue is tried again, µs. */
export const RETRY_MICROSECONDS = 1_000;

/** Packets for another device. */
interface Outbox {
  shared: SharedAddress;
  local: number;
  records: Uint8Array[];
}

/** A packet from another device, and the local index that it came to. */
interface Arrived {
  local: number;
  record: Uint8Array;
}

/** Counts of packets that the kernel gave to one device, and another one has. */
export interface SharingStats {
  passedOn: number;
  takenOver: number;
  /** For a device whose queue was full. */
  notPassedOn: number;
}

/** The other devices at the addresses of a link. */
export class Sharing {
  /** QPNs and communication ids of this device. */
  readonly numbers: ResidueClass;
  readonly stats: SharingStats = { passedOn: 0, takenOver: 0, notPassedOn: 0 };
  readonly #port: Port;
  readonly #place: number;
  readonly #addresses: readonly SharedAddress[];
  /** By local index of a socket: its address, and the local index of that. */
  readonly #locals: ({ shared: SharedAddress; index: number; isManagement: boolean } | undefined)[] = [];
  readonly #outboxes = new Map<string, Outbox>();
  #arrived: Arrived[] = [];
  #closed = false;
  readonly #buffer = new Uint8Array(65_536);

  constructor(port: Port, addresses: readonly SharedAddress[]) {
    this.#port = port;
    this.#addresses = addresses;
    this.#place = addresses[0].place;
    this.numbers = { modulus: PLACES, remainder: this.#place };
  }

  /** The sockets of an address are in the port, at these indices. */
  opened(shared: SharedAddress, index: number, managementIndex: number): void {
    this.#locals[index] = { shared, index, isManagement: false };
    this.#locals[managementIndex] = { shared, index, isManagement: true };
    this.#port.watch(shared.mailbox);
  }

  /** Requests to a service come to this device from now on. EADDRINUSE where another one listens to it. */
  claim(service: bigint): void {
    for (const shared of this.#addresses) {
      const mailbox = shared.claim(service);
      if (mailbox === undefined) {
        this.release(service);
        throw new RoceError('ERR_ROCE_PORT_IN_USE', `another program listens to service ${service}`, {
          errno: 'EADDRINUSE',
          attribute: 'port',
        });
      }
      this.#port.watch(mailbox);
    }
  }

  /** And no longer. */
  release(service: bigint): void {
    for (const shared of this.#addresses) {
      const mailbox = shared.release(service);
      if (mailbox === undefined) continue;
      this.#port.unwatch(mailbox);
      mailbox.close();
    }
  }

  /** Whether packets wait for room in a queue. */
  get waiting(): boolean {
    return this.#outboxes.size > 0;
  }

  /** Takes packets of other devices out of a batch that arrived, and puts those in that others passed on. */
  exchange(batch: RxBatch): void {
    this.#sift(batch);
    if (this.#port.takeMail()) this.#readMail();
    if (this.#outboxes.size > 0) this.#flush();
    if (this.#arrived.length > 0) this.#append(batch);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const shared of this.#addresses) shared.close();
  }

  #sift(batch: RxBatch): void {
    const { slab, slots, sources, count } = batch;
    let kept = 0;
    for (let i = 0; i < count; i++) {
      const w = i * RX_SLOT_WORDS;
      const local = this.#locals[slots[w + Rx.LOCAL]];
      if (local !== undefined) {
        const low = slab[slots[w + Rx.OFFSET] + 7];
        // The usual packet is this device's own: a look at the low byte of its QPN is all that it pays.
        const isOwn = (low & (PLACES - 1)) === this.#place && low !== GSI_QPN && !local.isManagement;
        if (!isOwn && slots[w + Rx.VERDICT] === Icrc.OK && this.#passOn(batch, i, local)) continue;
        slots[w + Rx.LOCAL] = local.index;
      }
      if (kept !== i) {
        slots.copyWithin(kept * RX_SLOT_WORDS, w, w + RX_SLOT_WORDS);
        sources.copyWithin(kept * 16, i * 16, i * 16 + 16);
      }
      kept++;
    }
    batch.count = kept;
  }

  /** Puts a packet into the outboxes of those whom it concerns. False if this device has it, too. */
  #passOn(
    batch: RxBatch,
    index: number,
    { shared, index: local }: { shared: SharedAddress; index: number },
  ): boolean {
    const { slab, slots } = batch;
    const w = index * RX_SLOT_WORDS;
    const at = slots[w + Rx.OFFSET];
    const qpn = bthDestQp(slab, at);
    const target = qpn === GSI_QPN ? madTarget(slab, at, slots[w + Rx.LENGTH]) : { number: qpn };
    if (target === undefined) return false;
    if (target === 'all') {
      for (let place = 0; place < PLACES; place++) {
        const name = shared.nameFor({ number: place });
        if (name !== undefined && shared.send(name, new Uint8Array(0)) !== ECONNREFUSED)
          this.#post(name, shared, local, record(batch, index));
      }
      return false;
    }
    const name = shared.nameFor(target);
    if (name === undefined) return false;
    this.#post(name, shared, local, record(batch, index));
    return true;
  }

  #post(name: string, shared: SharedAddress, local: number, bytes: Uint8Array): void {
    let outbox = this.#outboxes.get(name);
    if (!outbox) {
      outbox = { shared, local, records: [] };
      this.#outboxes.set(name, outbox);
    }
    if (outbox.records.length < MAX_WAITING) outbox.records.push(bytes);
    else this.stats.notPassedOn++;
  }

  #flush(): void {
    for (const [name, outbox] of this.#outboxes) {
      if (this.#send(name, outbox)) this.#outboxes.delete(name);
    }
  }

  /** False while the other device's queue is full. */
  #send(name: string, { shared, local, records }: Outbox): boolean {
    const message = this.#buffer;
    while (records.length > 0) {
      let length = 1;
      let count = 0;
      message[0] = Message.PACKETS;
      for (; count < records.length && length + records[count].length <= MESSAGE_BYTES; count++) {
        message.set(records[count], length);
        length += records[count].length;
      }
      const errno = shared.send(name, message.subarray(0, length));
      if (errno === EAGAIN) return false;
      const gone = records.splice(0, count);
      // There is no such device: this one answers, as one that has the address alone.
      if (errno === ECONNREFUSED) for (const each of gone) this.#arrived.push({ local, record: each });
      else if (errno === 0) this.stats.passedOn += count;
      else this.stats.notPassedOn += count;
    }
    return true;
  }

  #readMail(): void {
    for (const local of this.#locals) {
      if (local === undefined || local.isManagement) continue;
      for (const mailbox of local.shared.mailboxes()) this.#readMailbox(mailbox, local);
    }
  }

  #readMailbox(mailbox: LocalSocket, { shared, index }: { shared: SharedAddress; index: number }): void {
    const buffer = this.#buffer;
    for (let i = 0; i < MAX_MESSAGES; i++) {
      const message = mailbox.receive(buffer);
      if (message === undefined) return;
      const { length, uid, descriptors } = message;
      if (descriptors.length > 0) new Descriptors(descriptors).close();
      // An abstract name is open to everybody.
      if (uid !== process.geteuid?.() || length < 2) continue;
      if (buffer[0] === Message.ASK) this.#welcome(shared, buffer[1]);
      else if (buffer[0] === Message.PACKETS) this.#takeOver(buffer.subarray(1, length), index);
    }
  }

  #welcome(shared: SharedAddress, place: number): void {
    // From here on, a part of what a peer counts goes to others.
    if (shared.isAlone) this.#port.openIdWindow();
    shared.welcome(place);
  }

  /** Every packet to the addresses has come here so far. */
  get isAlone(): boolean {
    return this.#addresses.every(({ isAlone }) => isAlone);
  }

  #takeOver(bytes: Uint8Array, local: number): void {
    for (let at = 0; at + RECORD_HEAD <= bytes.length; ) {
      const end = at + RECORD_HEAD + (bytes[at] | (bytes[at + 1] << 8));
      this.#arrived.push({ local, record: bytes.slice(at, end) });
      this.stats.takenOver++;
      at = end;
    }
  }

  /** As far as there is room: behind the packets in the slab. */
  #append(batch: RxBatch): void {
    const { slab, slots, sources, capacity } = batch;
    const last = (batch.count - 1) * RX_SLOT_WORDS;
    let at = batch.count === 0 ? 0 : slots[last + Rx.OFFSET] + slots[last + Rx.LENGTH] + ICRC_BYTES;
    let taken = 0;
    for (const { local, record: bytes } of this.#arrived) {
      const length = bytes.length - RECORD_HEAD;
      if (batch.count === capacity || at + length > slab.length) break;
      const w = batch.count * RX_SLOT_WORDS;
      slab.set(bytes.subarray(RECORD_HEAD), at);
      slots[w + Rx.OFFSET] = at;
      slots[w + Rx.LENGTH] = length - ICRC_BYTES;
      slots[w + Rx.PEER] = NO_PEER;
      slots[w + Rx.LOCAL] = local;
      slots[w + Rx.TRAFFIC_CLASS] = bytes[2];
      slots[w + Rx.HOP_LIMIT] = bytes[3];
      slots[w + Rx.VERDICT] = Icrc.OK;
      slots[w + Rx.IP_ID] = 0;
      slots[w + Rx.SOURCE_PORT] = bytes[4] | (bytes[5] << 8);
      slots[w + Rx.STAMP_LOW] = slots[w + Rx.STAMP_HIGH] = slots[w + Rx.RUN] = 0;
      sources.set(bytes.subarray(6, RECORD_HEAD), batch.count * 16);
      at += length;
      batch.count++;
      taken++;
    }
    this.#arrived.splice(0, taken);
  }
}

/** A packet of a batch for a message. */
function record({ slab, slots, sources }: RxBatch, index: number): Uint8Array {
  const w = index * RX_SLOT_WORDS;
  const at = slots[w + Rx.OFFSET];
  const length = slots[w + Rx.LENGTH] + ICRC_BYTES;
  const bytes = new Uint8Array(RECORD_HEAD + length);
  bytes[0] = length;
  bytes[1] = length >> 8;
  bytes[2] = slots[w + Rx.TRAFFIC_CLASS];
  bytes[3] = slots[w + Rx.HOP_LIMIT];
  bytes[4] = slots[w + Rx.SOURCE_PORT];
  bytes[5] = slots[w + Rx.SOURCE_PORT] >> 8;
  bytes.set(sources.subarray(index * 16, index * 16 + 16), 6);
  bytes.set(slab.subarray(at, at + length), RECORD_HEAD);
  return bytes;
}
