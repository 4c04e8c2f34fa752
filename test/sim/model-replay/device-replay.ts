/**
 * A capture through a whole device, the model's or the engine's: one host's programs are played again, and the
 * other host is the capture. A receiver gets the packets that the real one got, with its own QPN, keys and
 * addresses in the place of the real ones; a sender posts what the real program posted. The packets of either are
 * compared with those of the real one.
 */
import {
  CONNECTION_DEFAULTS,
  decodePacket,
  type EndpointInfo,
  type EndpointKind,
  EngineDevice,
  encodePacket,
  type ModelCompletion,
  ModelDevice,
  type ModelPacket,
  type ModelSendRequest,
  type SimDevice,
  type SimQp,
  type SimService,
  type SimWindow,
} from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { inferPathMtu } from './inference.ts';
import { type Connection, otherSide, type Side, samePacket, show, type TracePacket } from './trace.ts';

/** The objects of one side's programs. */
export interface Setup {
  kind: EndpointKind;
  side: Side;
  service: SimService;
  connections: Connection[];
  /** First PSN by side and QPN, where it is known. */
  psns: Record<Side, Map<number, number>>;
  /** UD: of both queue pairs. */
  qkey?: number;
  /** Receives posted before anything comes: to each queue pair, or to one SRQ for all. */
  receives?: { count: number; bytes: number; firstWrId: number; shared?: boolean };
  /** The memory that the peer reads and writes, as the real host named it. */
  memory?: { base: bigint; rkey: number; content: Uint8Array };
  /** Key of a type 2 window that the program bound over the first bytes of that memory. */
  window?: { rkey: number; length: number };
}

export interface DeviceReplay {
  /** Differences between the capture and the device; empty is agreement. */
  differences: string[];
  /** Packets of the capture that were compared. */
  compared: number;
  /** Completions in the order in which they came; those of receives with the bytes received. */
  sends: ModelCompletion[];
  receives: { completion: ModelCompletion; bytes: Uint8Array }[];
  /** The memory at the end. */
  memory: Uint8Array;
}

/** The receives begin here; before it is the memory that the peer reads and writes, or that is sent. */
const RECEIVE_AREA = 1 << 20;
const HOUR = 3600e6;

/** One host's side of a capture. */
export class DeviceProgram {
  readonly #setup: Setup;
  readonly #device: SimDevice;
  readonly #qps: { qp: SimQp; connection: Connection }[];
  #window: SimWindow | undefined;
  #windowKey = 0;
  readonly #replay: DeviceReplay;
  readonly #sent: ModelPacket[] = [];

  constructor(setup: Setup) {
    this.#setup = setup;
    const { receives = { count: 0, bytes: 0, firstWrId: 0 }, connections, memory } = setup;
    const arenaBytes = RECEIVE_AREA + receives.count * receives.bytes + 1;
    this.#device = makeDevice(setup.kind, this.#gid(), arenaBytes);
    if (memory !== undefined) this.#device.arena.set(memory.content);
    const srq = receives.shared ? this.#device.createSrq() : undefined;
    const { service, qkey } = setup;
    this.#qps = connections.map((connection) => {
      const qp = this.#device.createQp({ service, psn: this.#psn(connection, setup.side), qkey, srq });
      qp.connect(this.#peerOf(connection), {
        ...CONNECTION_DEFAULTS,
        pathMtu: inferPathMtu(connection),
        timeout: 0,
        maxDestRdAtomic: 16,
      });
      return { qp, connection };
    });
    for (const poster of srq === undefined ? this.#qps.map(({ qp }) => qp) : [srq]) {
      for (let i = 0; i < receives.count; i++) {
        const offset = RECEIVE_AREA + i * receives.bytes;
        poster.postReceive({ wrId: receives.firstWrId + i, offset, length: receives.bytes });
      }
    }
    this.#replay = { differences: [], compared: 0, sends: [], receives: [], memory: this.#device.arena };
    if (setup.window !== undefined) this.#bind(setup.window.length);
  }

  /** Our own address: where the capture's packets to us go, or come from. A group's host has only sent or heard. */
  #gid(): Uint8Array {
    const { connections, side } = this.#setup;
    const [{ packets }] = connections;
    const own = packets.find(({ from }) => from === side);
    return own?.source ?? packets[0].destination;
  }

  #psn({ qpn, packets }: Connection, side: Side): number {
    const first = packets.find(({ from, isRequest }) => from === side && isRequest)?.packet.psn;
    return this.#setup.psns[side].get(qpn[side]) ?? first ?? 0;
  }

  /** The real peer, with its real keys: requests to it come out as the real ones. */
  #peerOf(connection: Connection): EndpointInfo {
    const peer = otherSide(this.#setup.side);
    const { source, destination, from } = connection.packets[0];
    // Nobody answers on UC: of a queue pair that only sends, no packet has the QPN; its program printed it.
    const [printed = 0] = this.#setup.psns[peer].keys();
    const qpn = connection.qpn[peer];
    return {
      gid: from === peer ? source : destination,
      qpn: qpn < 0 ? printed : qpn,
      psn: this.#psn(connection, peer),
      rkey: 0,
      base: 0n,
      qkey: this.#setup.qkey,
    };
  }

  /** As rxprobe's server: a type 2 window, bound by a request that completes. */
  #bind(length: number): void {
    const [{ qp }] = this.#qps;
    this.#window = this.#device.allocWindow(2);
    const [high, low] = [this.#window.rkey & ~0xff, (this.#window.rkey + 1) & 0xff];
    this.#windowKey = (high | low) >>> 0;
    const access = Access.REMOTE_WRITE | Access.REMOTE_READ;
    const bind = { window: this.#window, rkey: this.#windowKey, offset: 0, length, access };
    qp.postSend({ wrId: 1, opcode: 'BIND_MW', offset: 0, length: 0, bind });
    this.#transmit(0);
  }

  /** All packets to this side, one after the other; its answers are compared with those of the real one. */
  receive(): DeviceReplay {
    const { side, connections } = this.#setup;
    const ours = (p: TracePacket) => p.from !== side && p.isRequest;
    for (const traced of connections.flatMap(({ packets }) => packets.filter(ours)).sort(byNumber)) {
      this.#give(traced);
      this.#transmit(traced.time);
    }
    for (const connection of connections) {
      const answers = this.#sent.filter(({ destQpn }) => destQpn === connection.qpn[otherSide(side)]);
      this.#compare(
        answers,
        connection.packets.filter((p) => p.from === side && !p.isRequest),
      );
    }
    return this.#replay;
  }

  #give({ packet, source, destination, trafficClass, time }: TracePacket): void {
    const entry = this.#qps.find(({ connection }) => connection.qpn[this.#setup.side] === packet.destQpn);
    if (entry === undefined) throw new Error(`no queue pair for ${show(packet)}`);
    const toGroup = packet.destQpn === 0xff_ffff;
    if (toGroup) this.#device.attach(destination, entry.qp);
    const { qpn } = entry.qp.info;
    const bytes = encodePacket({ ...this.#aim(packet), destQpn: toGroup ? packet.destQpn : qpn });
    this.#device.receive(
      [{ bytes, source, destination, trafficClass, sourcePort: 0xc000, corrupt: false }],
      time,
    );
  }

  /** The packet with our keys and addresses. */
  #aim(packet: ModelPacket): ModelPacket {
    const { memory, window } = this.#setup;
    const { info } = this.#qps[0].qp;
    const key = (real: number) =>
      real === window?.rkey ? this.#windowKey : real === memory?.rkey ? info.rkey : real;
    const at = <T extends { va: bigint; rkey: number }>(range: T | undefined) =>
      range && { ...range, va: range.va - (memory?.base ?? 0n) + info.base, rkey: key(range.rkey) };
    return {
      ...packet,
      reth: at(packet.reth),
      atomicEth: at(packet.atomicEth),
      invalidateRkey: packet.invalidateRkey && key(packet.invalidateRkey),
    };
  }

  /** Posts all requests at once; the packets are compared with those of the real one. */
  send(posts: ModelSendRequest[]): DeviceReplay {
    const [{ qp, connection }] = this.#qps;
    let offset = 0;
    for (const { local, remote, destination: _d, bind: _b, ...post } of posts) {
      this.#device.arena.set(local, offset);
      const aim = remote && { remoteAddress: remote.va, rkey: remote.rkey };
      qp.postSend({ ...post, ...aim, offset, length: local.length });
      offset += local.length;
    }
    this.#transmit(0);
    const { side } = this.#setup;
    this.#compare(
      this.#sent,
      connection.packets.filter((p) => p.from === side && p.isRequest),
    );
    return this.#replay;
  }

  #transmit(now: number): void {
    this.#device.advance(Math.min(now, HOUR));
    for (const { bytes } of this.#device.transmit(now)) {
      const decoded = decodePacket(bytes);
      if (!decoded.ok) throw new Error(decoded.reason);
      this.#sent.push(decoded.packet);
    }
    for (const { qp } of this.#qps) {
      this.#replay.sends.push(...qp.pollSend());
      for (const completion of qp.pollReceive()) {
        const { bytes, firstWrId } = this.#setup.receives!;
        const at = RECEIVE_AREA + (completion.wrId - firstWrId) * bytes;
        const received = this.#device.arena.slice(at, at + (completion.byteLen ?? 0));
        this.#replay.receives.push({ completion, bytes: received });
      }
    }
  }

  #compare(sent: ModelPacket[], real: TracePacket[]): void {
    const { differences } = this.#replay;
    this.#replay.compared += real.length;
    for (let i = 0; i < Math.max(sent.length, real.length); i++) {
      const [own, captured] = [sent[i], real[i]];
      if (own !== undefined && captured !== undefined && samePacket(own, captured.packet)) continue;
      const [is, was] = [own && show(own), captured && show(captured.packet)];
      differences.push(
        `#${captured?.number ?? 'past the end'}: ${was ?? 'nothing'}; the device sends ${is ?? 'nothing'}`,
      );
    }
  }
}

const byNumber = (a: TracePacket, b: TracePacket) => a.number - b.number;

function makeDevice(kind: EndpointKind, gid: Uint8Array, arenaBytes: number): SimDevice {
  if (kind === 'model') return new ModelDevice({ gid, qpn: 0x10, arenaBytes });
  return new EngineDevice({ gid, arenaBytes, seed: 1, depth: 1024 });
}
