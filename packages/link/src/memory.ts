/**
 * Links that join adapters within one process, without sockets and without the addon: for tests.
 * No packet can come from outside, so an idle network keeps no process alive, not even after `ref()`.
 */
import {
  EFAULT,
  type GidEntry,
  gatherSlot,
  Icrc,
  isMemoryGone,
  markRuns,
  NO_PEER,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { gidFromText, gidToText, ICRC_BYTES, isMulticast, ROCE_UDP_PORT } from '@node-roce/wire';
import type { Link } from './link.ts';
import { LoopWaker } from './loop-waker.ts';

interface Arrived {
  bytes: Uint8Array;
  local: number;
  source: Uint8Array;
  trafficClass: number;
  sourcePort: number;
  hopLimit: number;
}

/** The text of a GID, by which links and groups are found. */
interface Name {
  readonly text: string;
  readonly isGroup: boolean;
}

const nameOf = (gid: Uint8Array): Name => ({ text: gidToText(gid), isGroup: isMulticast(gid) });

/**
 * A network of memory links: what is sent to an address arrives at the link that has it, what is sent to a group at
 * all that joined it, the sender among them, as the kernel does it.
 */
export class MemoryNetwork {
  readonly #links = new Map<string, MemoryLink>();

  /** A link with one address, any text that is an IP address. */
  link(address: string, activeMtu = 4096): MemoryLink {
    const link = new MemoryLink(this, address, activeMtu);
    this.#links.set(gidToText(link.gids[0].gid), link);
    return link;
  }

  deliver(packet: Omit<Arrived, 'local'>, destination: Uint8Array, name = nameOf(destination)): void {
    if (!name.isGroup) {
      this.#links.get(name.text)?.arrive({ ...packet, local: 0 });
      return;
    }
    for (const link of this.#links.values()) {
      const local = link.groupIndex(name.text);
      if (local !== undefined) link.arrive({ ...packet, local });
    }
  }

  drop(link: MemoryLink): void {
    this.#links.delete(gidToText(link.gids[0].gid));
  }
}

/** Packets that wait at one link before new ones are dropped. */
const MAX_QUEUED = 4096;

/** A link between devices of one process, without sockets. */
export class MemoryLink implements Link {
  readonly kind = 'memory';
  readonly port = ROCE_UDP_PORT;
  readonly gids: readonly GidEntry[];
  readonly activeMtu: number;
  readonly receiveBuffer = 32 * 1024 * 1024;
  readonly limitations = ['Reaches only other adapters of the same process.'];
  readonly #network: MemoryNetwork;
  readonly #queue: Arrived[] = [];
  readonly #peers: ({ gid: Uint8Array; name: Name; hopLimit: number } | undefined)[] = [];
  /** Groups joined, by local index; 0 is the link's own address. */
  readonly #groups: (string | undefined)[] = ['itself'];
  readonly #waker = new LoopWaker();
  #watched = false;
  #dropped = 0;
  #sent = 0;
  #received = 0;

  constructor(network: MemoryNetwork, address: string, activeMtu: number) {
    this.#network = network;
    this.gids = [{ gid: gidFromText(address), address, type: 'RoCE v2' }];
    this.activeMtu = activeMtu;
  }

  add(dgid: Uint8Array, _sgidIndex: number, hopLimit: number): number {
    const free = this.#peers.indexOf(undefined);
    const index = free >= 0 ? free : this.#peers.length;
    this.#peers[index] = { gid: dgid.slice(), name: nameOf(dgid), hopLimit };
    return index;
  }

  remove(peer: number): void {
    this.#peers[peer] = undefined;
  }

  join(group: Uint8Array): number {
    const name = gidToText(group);
    const joined = this.groupIndex(name);
    if (joined !== undefined) return joined;
    const free = this.#groups.indexOf(undefined);
    const local = free >= 0 ? free : this.#groups.length;
    this.#groups[local] = name;
    return local;
  }

  leave(local: number): void {
    if (local > 0) this.#groups[local] = undefined;
  }

  /** The local index of a group, if it is joined. */
  groupIndex(name: string): number | undefined {
    const local = this.#groups.indexOf(name);
    return local > 0 ? local : undefined;
  }

  send(batch: TxBatch, from: number): number {
    for (let i = from; i < batch.count; i++) {
      const w = i * TX_SLOT_WORDS;
      const peer = this.#peers[batch.slots[w + Tx.PEER]];
      batch.slots[w + Tx.STATUS] = 0;
      this.#sent++;
      if (!peer) continue;
      if (isMemoryGone(batch, i)) {
        batch.slots[w + Tx.STATUS] = EFAULT;
        continue;
      }
      const packet = {
        bytes: gatherSlot(batch, i),
        source: this.gids[0].gid,
        trafficClass: batch.slots[w + Tx.TRAFFIC_CLASS],
        sourcePort: batch.slots[w + Tx.SOURCE_PORT],
        hopLimit: peer.hopLimit,
      };
      this.#network.deliver(packet, peer.gid, peer.name);
    }
    return batch.count;
  }

  arrive(packet: Arrived): void {
    if (this.#queue.length >= MAX_QUEUED) {
      this.#dropped++;
      return;
    }
    this.#queue.push(packet);
    if (this.#watched && this.#queue.length === 1) this.#waker.wake();
  }

  receive(batch: RxBatch): number {
    let offset = 0;
    let count = 0;
    while (count < this.#queue.length && count < batch.capacity) {
      const packet = this.#queue[count];
      const end = offset + packet.bytes.length;
      if (end + ICRC_BYTES > batch.slab.length) break;
      batch.slab.set(packet.bytes, offset);
      batch.slab.fill(0, end, end + ICRC_BYTES);
      const w = count * RX_SLOT_WORDS;
      batch.slots[w + Rx.OFFSET] = offset;
      batch.slots[w + Rx.LENGTH] = packet.bytes.length;
      batch.slots[w + Rx.PEER] = NO_PEER;
      batch.slots[w + Rx.LOCAL] = packet.local;
      batch.slots[w + Rx.TRAFFIC_CLASS] = packet.trafficClass;
      batch.slots[w + Rx.HOP_LIMIT] = packet.hopLimit;
      batch.slots[w + Rx.VERDICT] = Icrc.OK;
      batch.slots[w + Rx.IP_ID] = 0;
      batch.slots[w + Rx.SOURCE_PORT] = packet.sourcePort;
      batch.slots[w + Rx.RUN] = 1;
      batch.sources.set(packet.source, count * 16);
      offset = end + ICRC_BYTES;
      count++;
    }
    this.#queue.splice(0, count);
    this.#received += count;
    batch.count = count;
    if (count > 1) markRuns(batch);
    return count;
  }

  watch(onWake: () => void): void {
    this.#watched = true;
    this.#waker.watch(onWake);
    if (this.#queue.length > 0) this.#waker.wake();
  }

  unwatch(): void {
    this.#watched = false;
    this.#waker.unwatch();
  }

  setDeadline(microsecondsFromNow: number): void {
    this.#waker.setDeadline(microsecondsFromNow);
  }

  wantWrite(): void {}

  ref(): void {
    this.#waker.ref();
  }

  unref(): void {
    this.#waker.unref();
  }

  stats(): Record<string, number> {
    return { txPackets: this.#sent, rxPackets: this.#received, dropped: this.#dropped };
  }

  async close(): Promise<void> {
    this.unwatch();
    this.#network.drop(this);
  }
}
