/**
 * The link that needs no compiler: `node:dgram`, between node-roce programs.
 *
 * Limitations of Node's sockets, and their consequences:
 *
 * - **Identification (IPv4).** It is covered by the ICRC (IBTA vol 1 annex A17.3.3), the kernel chooses it, and
 *   without `IP_MTU_DISCOVER` = `PROBE` it is not 0 but any (docs/icrc.md). Every packet here has the ICRC of
 *   Identification 0. Receivers of this project, who don't see the field either, find that right; an adapter
 *   that sees the header finds it wrong and drops the packet. Received packets count if their ICRC is that of
 *   an Identification of 0 … 127, which is how the native link computes them (a GSO run counts from 0).
 * - **Checksum.** Real adapters send UDP checksum 0. Over IPv6 the kernel drops such packets, and Node has no
 *   `UDP_NO_CHECK6_RX`. So with rxe or a ConnectX it can talk over neither.
 * - **Traffic class, hop limit, source port.** Packets leave with the system's values and from the port that we listen
 *   at: no DSCP, no ECN, and for ECMP and RSS all queue pairs are one flow. Of what arrives, traffic class and
 *   hop limit read as 0.
 * - **Errors.** Node reports a packet that the kernel refused (too large, no route) after `send` has returned. The packet
 *   is counted as an error and lost: its queue pair sees a timeout instead of LOC_LEN_ERR.
 * - **Polling.** Packets come in while the event loop turns: see `needsEventLoop`.
 * - **Groups.** Datagrams can be sent to a multicast group; none is joined.
 * - **Batches.** One system call per packet out, one event per packet in; no GSO, no GRO.
 */
import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import {
  EFAULT,
  EMPTY_GID,
  type GidEntry,
  gatherSlot,
  Icrc,
  isEmptyGid,
  isMemoryGone,
  NO_PEER,
  RX_SLOT_WORDS,
  Rx,
  type RxBatch,
  TX_SLOT_WORDS,
  Tx,
  type TxBatch,
} from '@node-roce/transport';
import {
  BTH_BYTES,
  gidEquals,
  gidFromText,
  gidToIpText,
  ICRC_BYTES,
  IP_MAY_FRAGMENT,
  isIpv4Mapped,
  isLinkLocal,
  ROCE_UDP_PORT,
  readIcrc,
  solveIpId,
  writeIcrc,
} from '@node-roce/wire';
import { FlowIcrc } from './flow-icrc.ts';
import { activeMtuOf, type NetworkInterface } from './interfaces.ts';
import type { Link } from './link.ts';
import {
  bindError,
  bufferLimitation,
  chooseAddresses,
  DEFAULT_RECEIVE_BUFFER,
  type LocalOptions,
} from './local-sockets.ts';
import { LoopWaker } from './loop-waker.ts';

export interface DgramLinkOptions extends LocalOptions {
  /** Bytes of receive buffer to ask for; the system's limit holds. Default 32 MiB. */
  receiveBuffer?: number;
}

/**
 * Packets that are sent in one turn of the event loop: as many as libuv reads in one. A peer in the same thread
 * thus keeps up, and everybody else has their turn.
 */
const MAX_IN_FLIGHT = 32;
/** Packets that wait to be received before new ones are dropped, as in a socket's buffer. */
const MAX_QUEUED = 4096;
/** Sources remembered at once. A stranger's costs at most that the table is made anew. */
const MAX_FLOWS = 4096;
/**
 * The Identifications that the native link's ICRCs have: 0, and a GSO run of up to 128 packets from 0. Without "don't fragment", 0 alone,
 * which simple devices send.
 */
const LAST_RUN_ID = 127;
const EINVAL = 22;

interface Local {
  socket: Socket;
  gid: Uint8Array;
  /** Zone for link-local peers, `%eth0`. */
  zone: string;
}

interface Peer {
  local: Local;
  address: string;
  icrc: FlowIcrc;
}

interface Source {
  gid: Uint8Array;
  icrc: FlowIcrc;
}

interface Arrived {
  bytes: Uint8Array;
  local: number;
  source: Source;
  port: number;
}

/** A link over `node:dgram`, between node-roce programs only. */
export class DgramLink implements Link {
  readonly kind = 'dgram';
  readonly needsEventLoop = true;
  readonly port: number;
  readonly gids: GidEntry[];
  readonly activeMtu: number;
  readonly receiveBuffer: number;
  readonly interface: NetworkInterface;
  readonly #locals: readonly Local[];
  readonly #peers: (Peer | undefined)[] = [];
  readonly #sources = new Map<string, Source>();
  readonly #queue: Arrived[] = [];
  readonly #waker = new LoopWaker();
  #inFlight = 0;
  #wantsWrite = false;
  readonly #stats = {
    txPackets: 0,
    sendErrors: 0,
    sendRejected: 0,
    sendBlocked: 0,
    rxPackets: 0,
    icrcBad: 0,
    icrcOutOfWindow: 0,
    /** IPv4 Identifications other than 0. */
    solved: 0,
    mayFragment: 0,
    runts: 0,
    overruns: 0,
    receiveErrors: 0,
  };

  /** Rejects with RoceError: EADDRINUSE (with who has the port), EADDRNOTAVAIL, ENOENT, EINVAL. */
  static async open(options: DgramLinkOptions): Promise<DgramLink> {
    const { port = ROCE_UDP_PORT, receiveBuffer = DEFAULT_RECEIVE_BUFFER } = options;
    const { nic, addresses } = chooseAddresses(options);
    const locals: Local[] = [];
    try {
      for (const address of addresses) locals.push(await openLocal(address, nic, port, receiveBuffer));
    } catch (error) {
      for (const { socket } of locals) socket.close();
      throw error;
    }
    return new DgramLink(nic, locals, addresses, port);
  }

  private constructor(
    nic: NetworkInterface,
    locals: readonly Local[],
    addresses: readonly string[],
    port: number,
  ) {
    this.interface = nic;
    this.activeMtu = activeMtuOf(nic);
    this.port = port;
    this.#locals = locals;
    this.gids = locals.map(({ gid }, i) => ({ gid, address: addresses[i], type: 'RoCE v2' }));
    this.receiveBuffer = Math.min(...locals.map(({ socket }) => socket.getRecvBufferSize()));
    for (const [i, { socket }] of locals.entries()) {
      socket.on('message', (bytes, from) => this.#arrive(bytes, from, i));
      socket.on('error', () => {
        this.#stats.receiveErrors++;
      });
    }
  }

  /** Of the addresses that it was opened with: a new one takes until a socket is bound, and is not waited for. */
  setAddress(address: string, present: boolean): boolean {
    const gid = gidFromText(address);
    const index = this.#locals.findIndex((local) => gidEquals(local.gid, gid));
    if (index < 0 || isEmptyGid(this.gids[index]) !== present) return false;
    this.gids[index] = present ? { gid, address, type: 'RoCE v2' } : EMPTY_GID;
    return true;
  }

  get limitations(): readonly string[] {
    return [
      'Reaches node-roce programs only: rxe and RoCE cards drop what it sends over IPv4, and over IPv6 the kernel drops what they send.',
      'Traffic class, ECN, hop limit and UDP source port are the system’s, and those of received packets are not known.',
      'Joins no multicast group: packets to a group leave by the system’s routes.',
      'One system call and one event a packet; a packet that the kernel refuses (no route, too large) is lost without an error.',
      'Packets come in only while the event loop turns: a program that polls has to await something, too.',
      ...bufferLimitation(this.receiveBuffer),
    ];
  }

  add(dgid: Uint8Array, sgidIndex: number, _hopLimit: number): number {
    const local = this.#locals[sgidIndex];
    const { port } = this;
    const address = gidToIpText(dgid) + (isLinkLocal(dgid) ? local.zone : '');
    const destination = dgid.slice();
    const icrc = new FlowIcrc({ source: local.gid, destination, sourcePort: port, destinationPort: port });
    const free = this.#peers.indexOf(undefined);
    const index = free >= 0 ? free : this.#peers.length;
    this.#peers[index] = { local, address, icrc };
    return index;
  }

  remove(peer: number): void {
    this.#peers[peer] = undefined;
  }

  send(batch: TxBatch, from: number): number {
    for (let i = from; i < batch.count; i++) {
      if (this.#inFlight >= MAX_IN_FLIGHT) {
        this.#stats.sendBlocked++;
        return i;
      }
      const w = i * TX_SLOT_WORDS;
      const peer = this.#peers[batch.slots[w + Tx.PEER]];
      batch.slots[w + Tx.STATUS] = peer ? 0 : EINVAL;
      if (!peer) {
        this.#stats.sendRejected++;
        continue;
      }
      if (isMemoryGone(batch, i)) {
        batch.slots[w + Tx.STATUS] = EFAULT;
        this.#stats.sendRejected++;
        continue;
      }
      // A copy, which nobody else writes: Node may send it later, and a region may be shared memory.
      const bytes = gatherSlot(batch, i, ICRC_BYTES);
      const end = bytes.length - ICRC_BYTES;
      writeIcrc(bytes, end, peer.icrc.of(bytes, 0, end, 0));
      this.#inFlight++;
      peer.local.socket.send(bytes, this.port, peer.address, this.#onSent);
    }
    return batch.count;
  }

  readonly #onSent = (error: Error | null): void => {
    this.#inFlight--;
    if (error) this.#stats.sendErrors++;
    else this.#stats.txPackets++;
    if (this.#wantsWrite && this.#inFlight <= MAX_IN_FLIGHT / 2) this.#waker.wake();
  };

  #arrive(bytes: Uint8Array, { address, port }: RemoteInfo, local: number): void {
    if (bytes.length < BTH_BYTES + ICRC_BYTES) {
      this.#stats.runts++;
      return;
    }
    if (this.#queue.length >= MAX_QUEUED) {
      this.#stats.overruns++;
      return;
    }
    this.#queue.push({ bytes, local, source: this.#source(address, port, local), port });
    this.#waker.wake();
  }

  #source(address: string, port: number, local: number): Source {
    const key = `${local} ${port} ${address}`;
    let source = this.#sources.get(key);
    if (source === undefined) {
      const gid = gidFromText(address.split('%')[0]);
      const destination = this.#locals[local].gid;
      const icrc = new FlowIcrc({
        source: gid,
        destination,
        sourcePort: port,
        destinationPort: this.port,
      });
      source = { gid, icrc };
      if (this.#sources.size >= MAX_FLOWS) this.#sources.clear();
      this.#sources.set(key, source);
    }
    return source;
  }

  receive(batch: RxBatch): number {
    const { slab, slots } = batch;
    let offset = 0;
    let count = 0;
    while (count < this.#queue.length && count < batch.capacity) {
      const { bytes, local, source, port } = this.#queue[count];
      if (offset + bytes.length > slab.length) break;
      slab.set(bytes, offset);
      const w = count * RX_SLOT_WORDS;
      slots[w + Rx.OFFSET] = offset;
      slots[w + Rx.LENGTH] = bytes.length - ICRC_BYTES;
      slots[w + Rx.PEER] = NO_PEER;
      slots[w + Rx.LOCAL] = local;
      slots[w + Rx.TRAFFIC_CLASS] = 0;
      slots[w + Rx.HOP_LIMIT] = 0;
      slots[w + Rx.SOURCE_PORT] = port;
      this.#check(bytes, source, slots, w);
      batch.sources.set(source.gid, count * 16);
      offset += bytes.length;
      count++;
    }
    this.#queue.splice(0, count);
    this.#stats.rxPackets += count;
    batch.count = count;
    return count;
  }

  /** Writes the ICRC's verdict, and the Identification that explains it. */
  #check(bytes: Uint8Array, { gid, icrc }: Source, slots: Uint32Array, w: number): void {
    const end = bytes.length - ICRC_BYTES;
    const difference = (readIcrc(bytes, end) ^ icrc.of(bytes, 0, end, 0)) >>> 0;
    let id = 0;
    let verdict: number = Icrc.OK;
    if (difference !== 0) {
      id = isIpv4Mapped(gid) ? solveIpId(difference, icrc.bytesAfterId(0, end)) : -1;
      if (id < 0) verdict = Icrc.BAD;
      else if (id > LAST_RUN_ID && id !== IP_MAY_FRAGMENT) verdict = Icrc.OUT_OF_WINDOW;
      else this.#stats.solved++;
      if (id === IP_MAY_FRAGMENT) this.#stats.mayFragment++;
    }
    if (verdict === Icrc.BAD) this.#stats.icrcBad++;
    else if (verdict === Icrc.OUT_OF_WINDOW) this.#stats.icrcOutOfWindow++;
    slots[w + Rx.VERDICT] = verdict;
    slots[w + Rx.IP_ID] = Math.max(0, id);
  }

  watch(onWake: () => void): void {
    this.#waker.watch(onWake);
    if (this.#queue.length > 0) this.#waker.wake();
  }

  unwatch(): void {
    this.#waker.unwatch();
  }

  setDeadline(microsecondsFromNow: number): void {
    this.#waker.setDeadline(microsecondsFromNow);
  }

  wantWrite(on: boolean): void {
    this.#wantsWrite = on;
    if (on && this.#inFlight <= MAX_IN_FLIGHT / 2) this.#waker.wake();
  }

  ref(): void {
    this.#waker.ref();
    for (const { socket } of this.#locals) socket.ref();
  }

  unref(): void {
    this.#waker.unref();
    for (const { socket } of this.#locals) socket.unref();
  }

  stats(): Record<string, number> {
    return { ...this.#stats };
  }

  async close(): Promise<void> {
    this.#waker.unwatch();
    await Promise.all(
      this.#locals.map(({ socket }) => new Promise<void>((resolve) => socket.close(() => resolve()))),
    );
  }
}

async function openLocal(
  address: string,
  nic: NetworkInterface,
  port: number,
  receiveBuffer: number,
): Promise<Local> {
  const gid = gidFromText(address);
  const family = isIpv4Mapped(gid) ? 4 : 6;
  const zone = isLinkLocal(gid) ? `%${nic.name}` : '';
  const socket = createSocket({
    type: `udp${family}`,
    ipv6Only: family === 6,
    // Addresses are numeric: there is nothing to look up, and nothing to wait for.
    lookup: (host, _options, done) => done(null, host, family),
  });
  try {
    const listening = once(socket, 'listening');
    socket.bind({ address: address + zone, port, exclusive: true });
    await listening;
    grow(socket, receiveBuffer);
    return { socket, gid, zone };
  } catch (error) {
    socket.close();
    throw bindError(error, address + zone, family, port);
  }
}

/** Linux gives as much as its limit allows; other systems refuse more than theirs, so less is asked for. */
function grow(socket: Socket, bytes: number): void {
  for (let wanted = bytes; wanted >= 65_536; wanted /= 2) {
    try {
      socket.setRecvBufferSize(Math.floor(wanted));
      return;
    } catch {
      // Less, then.
    }
  }
}
