/** The link under a simulated engine: a table of peers that gives free indices out again at once, and a socket that has no room at times. */
import {
  EFAULT,
  gatherSlot,
  isMemoryGone,
  type PeerTable,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import { gidEquals } from '@node-roce/wire';
import type { SimPacket } from './wire.ts';

/** The queue between the engine and the simulated network; it can be blocked. */
export class EngineLink implements PeerTable {
  readonly groups: Uint8Array[] = [];
  readonly #gid: Uint8Array;
  readonly #peers: (Uint8Array | undefined)[] = [];
  /** Last freed, first given out: a stale index names another peer. */
  readonly #free: number[] = [];
  #blockedUntil = 0;
  /** Packets that are taken before the socket is full. */
  #room = 0;
  /** Packets that were not sent because their memory or their peer was gone. */
  refused = 0;

  /** @param gid source of all packets */
  constructor(gid: Uint8Array) {
    this.#gid = gid;
  }

  add(dgid: Uint8Array): number {
    const index = this.#free.pop() ?? this.#peers.length;
    this.#peers[index] = dgid.slice();
    return index;
  }

  remove(peer: number): void {
    this.#peers[peer] = undefined;
    this.#free.push(peer);
  }

  join(group: Uint8Array): number {
    return this.groups.push(group.slice());
  }

  leave(): void {}

  /** Index of a peer by its address, or −1. */
  indexOf(gid: Uint8Array): number {
    return this.#peers.findIndex((peer) => peer !== undefined && gidEquals(peer, gid));
  }

  /** 0 for our own address, from 1 on for groups. */
  localOf(destination: Uint8Array): number {
    return this.groups.findIndex((group) => gidEquals(group, destination)) + 1;
  }

  /** The socket takes `room` packets more, and nothing until `until` µs. */
  block(until: number, room: number): void {
    this.#blockedUntil = until;
    this.#room = room;
  }

  /** When there is room again. */
  get blockedUntil(): number {
    return this.#blockedUntil;
  }

  /** Whether one more packet is taken now. */
  takes(now: number): boolean {
    return now >= this.#blockedUntil || this.#room-- > 0;
  }

  /** Reads a slot's packet at the moment it is sent. Undefined where it can't be sent: the slot's status has the reason. */
  gather(batch: TxBatch, index: number): SimPacket | undefined {
    const slot = batch.slots.subarray(index * TX_SLOT_WORDS, (index + 1) * TX_SLOT_WORDS);
    const isGone = isMemoryGone(batch, index);
    slot[Tx.STATUS] = isGone ? EFAULT : 0;
    const destination = this.#peers[slot[Tx.PEER]];
    if (isGone || destination === undefined) {
      this.refused++;
      return undefined;
    }
    return {
      bytes: gatherSlot(batch, index),
      source: this.#gid,
      destination,
      trafficClass: slot[Tx.TRAFFIC_CLASS],
      sourcePort: slot[Tx.SOURCE_PORT],
      corrupt: false,
    };
  }
}
