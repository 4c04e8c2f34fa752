/**
 * A link that writes what passes through another one into a pcapng file: packets as raw IP, each with
 * the ICRC that belongs to the headers shown. No privilege is needed, because nothing is captured.
 *
 * Sent packets are shown with IPv4 Identification 0, whatever the kernel numbers the parts of a
 * super-packet with; received ones with the Identification that was seen or solved.
 */

import { LinkType } from '@node-roce/pcap';
import { type CaptureWriter, createCaptureFile } from '@node-roce/pcap/node';
import {
  type CopyBatch,
  type GidEntry,
  Icrc,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { ICRC_BYTES, icrcV2, isIpv4Mapped, ROCE_UDP_PORT, writeIcrc } from '@node-roce/wire';
import type { Link } from './link.ts';
import { gatherSlot } from './memory.ts';

const BAD_ICRC = ['the ICRC of this packet was wrong; the one shown is right for what arrived'];

export class TracerLink implements Link {
  readonly #link: Link;
  readonly #file: CaptureWriter;
  readonly #peers = new Map<number, { gid: Uint8Array; local: number; hopLimit: number }>();
  #written = 0;
  #dropped = 0;
  #full = false;

  /** Creates the file. Rejects with the system's error if that can't be done. */
  static async open(link: Link, path: string): Promise<TracerLink> {
    const file = await createCaptureFile(path, {
      application: 'node-roce',
      interfaces: [{ linkType: LinkType.RAW, name: link.gids.map((g) => g.address).join(' ') }],
    });
    return new TracerLink(link, file);
  }

  constructor(link: Link, file: CaptureWriter) {
    this.#link = link;
    this.#file = file;
  }

  get kind(): string {
    return `tracer(${this.#link.kind})`;
  }
  get gids(): readonly GidEntry[] {
    return this.#link.gids;
  }
  get activeMtu(): number {
    return this.#link.activeMtu;
  }
  get receiveBuffer(): number {
    return this.#link.receiveBuffer;
  }
  get copy(): CopyBatch | undefined {
    return this.#link.copy;
  }
  get limitations(): readonly string[] {
    return [...this.#link.limitations, 'Tracing copies every packet once more.'];
  }

  add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    const peer = this.#link.add(dgid, sgidIndex, hopLimit);
    this.#peers.set(peer, { gid: dgid.slice(), local: sgidIndex, hopLimit });
    return peer;
  }

  remove(peer: number): void {
    this.#peers.delete(peer);
    this.#link.remove(peer);
  }

  send(batch: TxBatch, from: number): number {
    const taken = this.#link.send(batch, from);
    const now = wallClock();
    for (let i = from; i < taken; i++) {
      const w = i * TX_SLOT_WORDS;
      const peer = this.#peers.get(batch.slots[w + Tx.PEER]);
      if (batch.slots[w + Tx.STATUS] !== 0 || !peer) continue;
      const data = ipPacket({
        source: this.gids[peer.local].gid,
        destination: peer.gid,
        trafficClass: batch.slots[w + Tx.TRAFFIC_CLASS],
        hopLimit: peer.hopLimit,
        id: 0,
        sourcePort: batch.slots[w + Tx.SOURCE_PORT],
        payload: gatherSlot(batch, i),
      });
      this.#write({ ...now, data, direction: 'outbound' });
    }
    return taken;
  }

  receive(batch: RxBatch): number {
    const count = this.#link.receive(batch);
    const now = wallClock();
    for (let i = 0; i < count; i++) {
      const w = i * RX_SLOT_WORDS;
      const { slots } = batch;
      const start = slots[w + Rx.OFFSET];
      const local = this.gids[slots[w + Rx.LOCAL]];
      if (!local) continue;
      const data = ipPacket({
        source: batch.sources.subarray(i * 16, i * 16 + 16),
        destination: local.gid,
        trafficClass: slots[w + Rx.TRAFFIC_CLASS],
        hopLimit: slots[w + Rx.HOP_LIMIT],
        id: slots[w + Rx.IP_ID],
        sourcePort: slots[w + Rx.SOURCE_PORT],
        payload: batch.slab.subarray(start, start + slots[w + Rx.LENGTH]),
      });
      const comments = slots[w + Rx.VERDICT] === Icrc.OK ? undefined : BAD_ICRC;
      this.#write({ ...now, data, direction: 'inbound', ...(comments ? { comments } : {}) });
    }
    return count;
  }

  /** Never waits: what the file can't take now is dropped and counted. */
  #write(packet: Parameters<CaptureWriter['write']>[0]): void {
    if (this.#full) {
      this.#dropped++;
      return;
    }
    this.#written++;
    try {
      if (this.#file.write(packet)) return;
    } catch {
      this.#full = true; // The disk, most likely; close() will say.
      return;
    }
    this.#full = true;
    this.#file.drain().then(
      () => {
        this.#full = false;
      },
      () => {},
    );
  }

  watch(onWake: () => void): void {
    this.#link.watch(onWake);
  }
  unwatch(): void {
    this.#link.unwatch();
  }
  setDeadline(microsecondsFromNow: number): void {
    this.#link.setDeadline(microsecondsFromNow);
  }
  wantWrite(on: boolean): void {
    this.#link.wantWrite(on);
  }
  ref(): void {
    this.#link.ref();
  }
  unref(): void {
    this.#link.unref();
  }

  stats(): Record<string, number> {
    return { ...this.#link.stats(), tracedPackets: this.#written, traceDrops: this.#dropped };
  }

  /** Closes the link, then the file; rejects if the file could not be written. */
  async close(): Promise<void> {
    await this.#link.close();
    await this.#file.close();
  }
}

function wallClock(): { seconds: number; nanoseconds: number } {
  const ms = performance.timeOrigin + performance.now();
  const seconds = Math.floor(ms / 1000);
  return { seconds, nanoseconds: Math.floor((ms - seconds * 1000) * 1e6) };
}

interface IpPacketParts {
  source: Uint8Array;
  destination: Uint8Array;
  trafficClass: number;
  hopLimit: number;
  id: number;
  sourcePort: number;
  /** BTH through pad. */
  payload: Uint8Array;
}

/** An IPv4 or IPv6 packet around a RoCE payload, with its checksum and ICRC; UDP checksum 0. */
function ipPacket(parts: IpPacketParts): Uint8Array<ArrayBuffer> {
  const { source, destination, payload } = parts;
  const v4 = isIpv4Mapped(destination);
  const ip = v4 ? 20 : 40;
  const udpLength = 8 + payload.length + ICRC_BYTES;
  const bytes = new Uint8Array(ip + udpLength);
  const view = new DataView(bytes.buffer);
  if (v4) {
    bytes[0] = 0x45;
    bytes[1] = parts.trafficClass;
    view.setUint16(2, bytes.length);
    view.setUint16(4, parts.id);
    view.setUint16(6, 0x4000); // DF
    bytes[8] = parts.hopLimit;
    bytes[9] = 17;
    bytes.set(source.subarray(12), 12);
    bytes.set(destination.subarray(12), 16);
    let sum = 0;
    for (let i = 0; i < 20; i += 2) sum += view.getUint16(i);
    sum = (sum & 0xffff) + (sum >>> 16);
    view.setUint16(10, ~(sum + (sum >>> 16)) & 0xffff);
  } else {
    view.setUint32(0, (0x6000_0000 | (parts.trafficClass << 20)) >>> 0);
    view.setUint16(4, udpLength);
    bytes[6] = 17;
    bytes[7] = parts.hopLimit;
    bytes.set(source, 8);
    bytes.set(destination, 24);
  }
  view.setUint16(ip, parts.sourcePort);
  view.setUint16(ip + 2, ROCE_UDP_PORT);
  view.setUint16(ip + 4, udpLength);
  bytes.set(payload, ip + 8);
  const end = bytes.length - ICRC_BYTES;
  writeIcrc(bytes, end, icrcV2(bytes, 0, end));
  return bytes;
}
