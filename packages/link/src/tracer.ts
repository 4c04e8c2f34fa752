/**
 * A link that writes the packets of another one into a pcapng file: packets as raw IP, each with
 * the ICRC that belongs to the headers shown. No privilege is needed, because nothing is captured.
 *
 * Sent packets are shown with IPv4 Identifications that count them, whatever the kernel gives them and the
 * parts of a super-packet: so a retransmission is not taken for a packet that a capture shows twice. Received ones have the
 * Identification that was seen or solved. A received packet whose ICRC was wrong keeps it, and has a comment.
 */
import type { CaptureWriter } from '@node-roce/pcap/node';
import {
  gatherSlot,
  Icrc,
  RoceError,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { ICRC_BYTES } from '@node-roce/wire';
import { ipPacket } from './ip-packet.ts';
import type { Link } from './link.ts';
import { LinkWrapper } from './wrapper.ts';

const BAD_ICRC = ['ICRC wrong: dropped'];
const OUT_OF_WINDOW = [
  'ICRC right only for an IPv4 Identification outside of the window of its flow: dropped',
];

/** Bytes that may wait for the file before packets are left out. */
const DEFAULT_BUFFER = 64 * 1024 * 1024;

type Packet = Parameters<CaptureWriter['write']>[0];

/** A link that writes every packet of the link inside it into a pcapng file. */
export class TracerLink extends LinkWrapper {
  readonly #file: CaptureWriter;
  readonly #path: string;
  readonly #peers = new Map<number, { gid: Uint8Array; local: number; hopLimit: number }>();
  /** Addresses of groups by local index. */
  readonly #groups = new Map<number, Uint8Array>();
  #written = 0;
  /** Identification of the packet sent last. */
  #id = 0;
  /** Packets that are not in the file, and those of them that the next packet's record has yet to count. */
  #dropped = 0;
  #untold = 0;
  /** Bytes written since the file fell behind, and how many these may be. */
  #behind = 0;
  readonly #buffer: number;
  #draining = false;
  #broken = false;

  /**
   * Creates the file, or replaces it. Rejects with the system's error if that can't be done.
   * @param buffer bytes that may wait for the file before packets are left out
   */
  static async open(inner: Link, path: string, buffer = DEFAULT_BUFFER): Promise<TracerLink> {
    // Here, because most programs trace nothing: with the writer, Node loads a reader and decompressors.
    const [{ createCaptureFile }, { LinkType }] = await Promise.all([
      import('@node-roce/pcap/node'),
      import('@node-roce/pcap'),
    ]);
    const file = await createCaptureFile(path, {
      application: 'node-roce',
      interfaces: [{ linkType: LinkType.RAW, name: inner.gids.map((g) => g.address).join(' ') }],
    });
    return new TracerLink(inner, file, buffer, path);
  }

  constructor(inner: Link, file: CaptureWriter, buffer: number, path: string) {
    super(inner);
    this.#path = path;
    this.#file = file;
    this.#buffer = buffer;
  }

  get kind(): string {
    return `tracer(${this.inner.kind})`;
  }

  override get limitations(): readonly string[] {
    return [...this.inner.limitations, 'Tracing copies and checksums every packet once more.'];
  }

  override add(dgid: Uint8Array, sgidIndex: number, hopLimit: number): number {
    const peer = this.inner.add(dgid, sgidIndex, hopLimit);
    this.#peers.set(peer, { gid: dgid.slice(), local: sgidIndex, hopLimit });
    return peer;
  }

  override remove(peer: number): void {
    this.#peers.delete(peer);
    this.inner.remove(peer);
  }

  protected override joinGroup(group: Uint8Array, sgidIndex: number): number {
    const local = super.joinGroup(group, sgidIndex);
    this.#groups.set(local, group.slice());
    return local;
  }

  override send(batch: TxBatch, from: number, time?: Float64Array): number {
    const taken = this.inner.send(batch, from, time);
    const now = wallClock();
    for (let i = from; i < taken; i++) {
      const w = i * TX_SLOT_WORDS;
      const peer = this.#peers.get(batch.slots[w + Tx.PEER]);
      if (batch.slots[w + Tx.STATUS] !== 0 || !peer || !this.#hasRoom()) continue;
      const data = ipPacket({
        source: this.gids[peer.local].gid,
        destination: peer.gid,
        trafficClass: batch.slots[w + Tx.TRAFFIC_CLASS],
        hopLimit: peer.hopLimit,
        id: this.#nextId(),
        sourcePort: batch.slots[w + Tx.SOURCE_PORT],
        destinationPort: this.port,
        payload: gatherSlot(batch, i),
      });
      this.#write({ ...now, data, direction: 'outbound' });
    }
    return taken;
  }

  override receive(batch: RxBatch, time?: Float64Array): number {
    const count = this.inner.receive(batch, time);
    const now = wallClock();
    for (let i = 0; i < count; i++) {
      const w = i * RX_SLOT_WORDS;
      const { slots, slab } = batch;
      const local = slots[w + Rx.LOCAL];
      const destination = this.#groups.get(local) ?? this.gids[local]?.gid;
      if (!destination || !this.#hasRoom()) continue;
      const start = slots[w + Rx.OFFSET];
      const end = start + slots[w + Rx.LENGTH];
      const bad = slots[w + Rx.VERDICT] === Icrc.BAD;
      const data = ipPacket({
        source: batch.sources.subarray(i * 16, i * 16 + 16),
        destination,
        trafficClass: slots[w + Rx.TRAFFIC_CLASS],
        hopLimit: slots[w + Rx.HOP_LIMIT],
        id: slots[w + Rx.IP_ID],
        sourcePort: slots[w + Rx.SOURCE_PORT],
        destinationPort: this.port,
        payload: slab.subarray(start, end),
        ...(bad ? { icrc: slab.subarray(end, end + ICRC_BYTES) } : {}),
      });
      const comments = bad
        ? BAD_ICRC
        : slots[w + Rx.VERDICT] === Icrc.OUT_OF_WINDOW
          ? OUT_OF_WINDOW
          : undefined;
      this.#write({ ...now, data, direction: 'inbound', ...(comments ? { comments } : {}) });
    }
    return count;
  }

  #nextId(): number {
    this.#id = (this.#id + 1) & 0xffff;
    return this.#id;
  }

  /** False, and the packet is counted as dropped, while the file can't take more: nobody waits for it. */
  #hasRoom(): boolean {
    if (!this.#broken && this.#behind < this.#buffer) return true;
    this.#dropped++;
    this.#untold++;
    return false;
  }

  #write(packet: Packet): void {
    const told = this.#untold > 0 ? { ...packet, dropCount: this.#untold } : packet;
    this.#untold = 0;
    this.#written++;
    try {
      if (this.#file.write(told)) return;
    } catch {
      this.#broken = true; // The disk, most likely: close() reports the error.
      return;
    }
    this.#behind += told.data.length;
    if (this.#draining) return;
    this.#draining = true;
    this.#file.drain().then(
      () => {
        this.#draining = false;
        this.#behind = 0;
      },
      () => {
        this.#broken = true;
      },
    );
  }

  override stats(): Record<string, number> {
    return { ...this.inner.stats(), tracedPackets: this.#written, traceDrops: this.#dropped };
  }

  /** Closes the link, then the file; rejects with ERR_ROCE_TRACE if the file could not be written. */
  override async close(): Promise<void> {
    await this.inner.close();
    try {
      await this.#file.close();
    } catch (cause) {
      throw traceError(this.#path, cause);
    }
  }
}

/** The error of a trace that could not be created or written. */
export function traceError(path: string, cause: unknown): RoceError {
  const { code, message } = cause as NodeJS.ErrnoException;
  return new RoceError('ERR_ROCE_TRACE', `trace: ${path} can't be written: ${message}`, {
    errno: code === 'ENOENT' ? 'ENOENT' : 'EIO',
    attribute: 'trace',
    expected: 'a file in a folder that exists and can be written, and room for it',
    cause,
  });
}

function wallClock(): { seconds: number; nanoseconds: number } {
  const ms = performance.timeOrigin + performance.now();
  const seconds = Math.floor(ms / 1000);
  return { seconds, nanoseconds: Math.floor((ms - seconds * 1000) * 1e6) };
}
