/** Shared by the tests: a port on one loopback address, packets to send, packets that came. */
import {
  Icrc,
  NO_PEER,
  RegionTable,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '@node-roce/transport';
import { createRandom, gidFromText } from '@node-roce/wire';
import { Port, type PortOptions, Socket, type SocketOptions } from '../index.js';

export interface Received {
  bytes: Uint8Array;
  payload: Uint8Array;
  peer: number;
  local: number;
  trafficClass: number;
  hopLimit: number;
  verdict: number;
  ipId: number;
  sourcePort: number;
  run: number;
  source: Uint8Array;
}

/** A port with one local address, and batches. */
export class Station {
  readonly port: Port;
  readonly socket: Socket;
  readonly regions = new RegionTable();
  readonly tx: TxBatch;
  readonly rx = new RxBatch();

  constructor(
    address: string,
    port: number,
    options: PortOptions = {},
    socketOptions: Partial<SocketOptions> = {},
  ) {
    this.port = new Port(options);
    this.socket = new Socket({
      family: address.includes(':') ? 6 : 4,
      address,
      port,
      receiveBuffer: 16 << 20,
      gro: true,
      ...socketOptions,
    });
    this.port.addLocal(this.socket);
    this.tx = new TxBatch(this.regions, 512, 4096);
  }

  peer(address: string, port: number, hopLimit = 64): number {
    return this.port.addPeer({ address: gidFromText(address), local: 0, hopLimit, port });
  }

  /** Puts a packet into the batch. The header is a BTH with `psn`, and zeroes behind it. */
  add(packet: {
    peer: number;
    psn?: number;
    headerLength?: number;
    fragments?: [region: number, offset: number, length: number][];
    trafficClass?: number;
    sourcePort?: number;
  }): number {
    const { tx } = this;
    const index = tx.count++;
    const { headerLength = 12, fragments = [], psn = index } = packet;
    const length = fragments.reduce((sum, [, , n]) => sum + n, 0);
    const pad = -length & 3;
    tx.headers.fill(0, index * 64, index * 64 + 64);
    tx.headers.set(
      [0x04, 0x40 | (pad << 4), 0xff, 0xff, 0x55, 0, 0, 0x11, 0, psn >> 16, psn >> 8, psn],
      index * 64,
    );
    const slot = tx.slots.subarray(index * TX_SLOT_WORDS, (index + 1) * TX_SLOT_WORDS).fill(0);
    slot[Tx.HEADER_OFFSET] = index * 64;
    slot[Tx.HEADER_LENGTH] = headerLength;
    slot[Tx.FRAGMENT_FIRST] = tx.fragmentCount;
    slot[Tx.FRAGMENT_COUNT] = fragments.length;
    slot[Tx.PAYLOAD_LENGTH] = length;
    slot[Tx.PAD] = pad;
    slot[Tx.PEER] = packet.peer;
    slot[Tx.TRAFFIC_CLASS] = packet.trafficClass ?? 0;
    slot[Tx.SOURCE_PORT] = packet.sourcePort ?? 0xc001;
    slot[Tx.STATUS] = 0xdead;
    for (const [region, offset, n] of fragments) {
      tx.fragments.set([region, offset % 2 ** 32, Math.floor(offset / 2 ** 32), n], tx.fragmentCount++ * 4);
    }
    return index;
  }

  /** Sends the batch and empties it. @returns what `send` returned and each slot's status */
  flush(): { taken: number; status: number[] } {
    const { slots, headers, fragments, count, regions } = this.tx;
    const taken = this.port.send(slots, headers, fragments, 0, count, regions.views, regions.shared);
    const status = Array.from({ length: count }, (_, i) => slots[i * TX_SLOT_WORDS + Tx.STATUS]);
    this.tx.clear();
    return { taken, status };
  }

  /** All that has arrived; on loopback that is at once. */
  receive(): Received[] {
    const packets: Received[] = [];
    for (let more = this.receiveOnce(); more.length > 0; more = this.receiveOnce()) packets.push(...more);
    return packets;
  }

  /** One call of the port's `receive`. */
  receiveOnce(): Received[] {
    const { rx } = this;
    rx.count = this.port.receive(rx.slab, rx.slots, rx.sources, rx.capacity);
    return Array.from({ length: rx.count }, (_, i) => {
      const slot = rx.slots.subarray(i * RX_SLOT_WORDS, (i + 1) * RX_SLOT_WORDS);
      const bytes = rx.slab.slice(slot[Rx.OFFSET], slot[Rx.OFFSET] + slot[Rx.LENGTH]);
      return {
        bytes,
        payload: bytes.subarray(12, bytes.length - ((bytes[1] >> 4) & 3)),
        peer: slot[Rx.PEER] === NO_PEER ? -1 : slot[Rx.PEER],
        local: slot[Rx.LOCAL],
        trafficClass: slot[Rx.TRAFFIC_CLASS],
        hopLimit: slot[Rx.HOP_LIMIT],
        verdict: slot[Rx.VERDICT],
        ipId: slot[Rx.IP_ID],
        sourcePort: slot[Rx.SOURCE_PORT],
        run: slot[Rx.RUN],
        source: rx.sources.slice(i * 16, i * 16 + 16),
      };
    });
  }

  close(): void {
    this.port.close();
    this.socket.close();
  }
}

export const psnOf = (packet: Received): number =>
  (packet.bytes[9] << 16) | (packet.bytes[10] << 8) | packet.bytes[11];
export const allOk = (packets: Received[]): boolean => packets.every((packet) => packet.verdict === Icrc.OK);

/** Bytes that differ from place to place. */
export function pattern(length: number, buffer: ArrayBufferLike = new ArrayBuffer(length)): Uint8Array {
  const bytes = new Uint8Array(buffer, 0, length);
  const random = createRandom(1);
  for (let i = 0; i < length; i++) bytes[i] = random.next();
  return bytes;
}

/** How long a program that a test runs may take, ms. */
export const DEADLINE_MS = 240_000;
