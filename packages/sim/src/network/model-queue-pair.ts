/** A queue pair of the model as scenarios see it: offsets in arenas instead of addresses, one face for all services. */
import type { RetransmitCause } from '@node-roce/transport';
import { gidEquals, psnLessThan } from '@node-roce/wire';
import type { ModelMemory, ModelRegion } from '../model/memory.ts';
import { type ModelPacket, rowOf } from '../model/packet.ts';
import { ModelQp, type QpEvent } from '../model/rc-qp.ts';
import type { ReceiveQueue } from '../model/receive-queue.ts';
import { ModelUnreliableQp } from '../model/unreliable-qp.ts';
import type { ModelCompletion, ModelReceiveRequest, ModelSendRequest } from '../model/work.ts';
import { type ModelXrcDomain, ModelXrcInitiator, ModelXrcTarget } from '../model/xrc-qp.ts';
import {
  ACTIVE_MTU,
  type AttributeChange,
  type ConnectionOptions,
  type EndpointInfo,
  type SimQpOptions,
  type SimReceive,
  type SimRegion,
  type SimSend,
  sendsDatagrams,
  type VariableQp,
} from './endpoint.ts';
import type { ModelHost } from './model-host.ts';

/** A packet to send. */
export interface Outgoing {
  packet: ModelPacket;
  /** A GID. */
  destination: Uint8Array;
  retransmission?: RetransmitCause;
}

const isGone = (memory: ModelMemory, region: SimRegion | undefined) =>
  region !== undefined && !memory.regions.includes(region as unknown as ModelRegion);

/** A receive in terms of the model; without a region, it is in the arena. */
export function receiveRequest(
  memory: ModelMemory,
  { wrId, offset, length, broken, region }: SimReceive,
  arena: Uint8Array,
): ModelReceiveRequest {
  return {
    wrId,
    local: (region?.bytes ?? arena).subarray(offset, offset + length),
    get broken() {
      return broken || (length > 0 && isGone(memory, region));
    },
  };
}

/** A queue pair of a `ModelDevice`. */
export class ModelQueuePair implements VariableQp {
  readonly info: EndpointInfo;
  readonly #host: ModelHost;
  readonly #options: SimQpOptions;
  readonly #receives: ReceiveQueue;
  readonly #xrcDomain: ModelXrcDomain;
  #peer: EndpointInfo | undefined;
  #rc: ModelQp | undefined;
  /** Stands between it and the wire; of RC the queue pair itself. */
  #reliable: ModelQp | ModelXrcInitiator | ModelXrcTarget | undefined;
  #unreliable: ModelUnreliableQp | undefined;

  constructor(
    host: ModelHost,
    qpn: number,
    options: SimQpOptions,
    receives: ReceiveQueue,
    xrcDomain: ModelXrcDomain,
  ) {
    this.#xrcDomain = xrcDomain;
    this.#host = host;
    this.#options = options;
    this.#receives = receives;
    const { psn, qkey } = options;
    const { rkey, base } = host.region;
    const { gid } = host.options;
    this.info = { gid, qpn, psn, rkey, base, ...(qkey === undefined ? {} : { qkey }) };
  }

  /** The model's own, once connected: its state is open to scenarios. */
  get rc(): ModelQp {
    if (this.#rc === undefined) throw new Error('no reliable connection');
    return this.#rc;
  }

  get #qp(): ModelQp | ModelUnreliableQp {
    const qp = this.#rc ?? this.#unreliable;
    if (qp === undefined) throw new Error('not connected');
    return qp;
  }

  get events(): readonly QpEvent[] {
    // §11.6.3.1 is of queue pairs with an SRQ; a target has none of its own.
    return this.#options.service === 'XRC_TGT' ? [] : ((this.#rc ?? this.#unreliable)?.events ?? []);
  }

  get state(): 'RESET' | 'RTS' | 'SQD' | 'SQE' | 'ERR' {
    return (this.#rc ?? this.#unreliable)?.state ?? 'RESET';
  }

  /** The queue pair at the other end of a connection that is open. */
  get connectedTo(): number | undefined {
    const isOpen = this.state === 'RTS' || this.state === 'SQD';
    return isOpen && !sendsDatagrams(this.#options.service) ? this.#peer?.qpn : undefined;
  }

  connect(peer: EndpointInfo, options: ConnectionOptions): void {
    this.#peer = peer;
    const { qpn, psn } = this.info;
    const { window = 128, timerFactor = 1 } = this.#host.options;
    const common = {
      qpn,
      destQpn: peer.qpn,
      accessFlags: options.qpAccessFlags,
      sqPsn: psn,
      rqPsn: peer.psn,
    };
    const { service, qkey = 0 } = this.#options;
    // Receives of an XRC SRQ are not for one peer alone: none are counted.
    const flowControl = options.credits && service === 'RC';
    const reliable = { ...options, ...common, flowControl, window, timerFactor };
    if (service === 'RC') {
      this.#reliable = this.#rc = new ModelQp(reliable, this.#host.memory, this.#receives);
    } else if (service === 'XRC_INI') {
      this.#reliable = new ModelXrcInitiator(reliable, this.#host.memory);
      this.#rc = this.#reliable.rc;
    } else if (service === 'XRC_TGT') {
      this.#reliable = new ModelXrcTarget(reliable, this.#xrcDomain);
      this.#rc = this.#reliable.rc;
    } else {
      const datagrams = sendsDatagrams(service);
      const pathMtu = datagrams ? ACTIVE_MTU : options.pathMtu;
      const config = { ...common, service: datagrams ? ('UD' as const) : ('UC' as const), pathMtu, qkey };
      this.#unreliable = new ModelUnreliableQp(config, this.#host.memory, this.#receives);
    }
  }

  postSend(post: SimSend): void {
    const {
      offset,
      length,
      remoteOffset,
      remoteAddress,
      rkey,
      bind,
      to,
      region,
      broken,
      inline,
      ...request
    } = post;
    const { memory } = this.#host;
    const bytes = this.#bytesOf(region).subarray(offset, offset + length);
    const peer = this.#peer!;
    const send: ModelSendRequest = {
      ...request,
      local: inline ? bytes.slice() : bytes,
      get broken() {
        return broken || (length > 0 && !inline && isGone(memory, region));
      },
    };
    if (remoteOffset !== undefined || remoteAddress !== undefined) {
      const va = remoteAddress ?? peer.base + BigInt(remoteOffset!);
      send.remote = { va, rkey: rkey ?? peer.rkey };
    }
    if (bind !== undefined) send.bind = this.#bindOf(bind);
    if (sendsDatagrams(this.#options.service)) send.destination = to ?? { ...peer, qkey: peer.qkey ?? 0 };
    this.#qp.postSend(send);
  }

  #bytesOf(region: SimRegion | undefined): Uint8Array {
    return region?.bytes ?? this.#host.arena;
  }

  #bindOf({
    window,
    offset,
    region: other,
    ...bind
  }: NonNullable<SimSend['bind']>): ModelSendRequest['bind'] {
    const { windows } = this.#host;
    const region = (other as ModelRegion | undefined) ?? this.#host.region;
    return { ...bind, window: windows[window.handle], region, va: region.base + BigInt(offset) };
  }

  postReceive({ wrId, offset, length, broken, region }: SimReceive): void {
    this.#qp.postReceive(
      receiveRequest(this.#host.memory, { wrId, offset, length, broken, region }, this.#host.arena),
    );
  }

  pollSend(): ModelCompletion[] {
    return this.#qp.sendCompletions.splice(0);
  }

  pollReceive(): ModelCompletion[] {
    return this.#qp.receiveCompletions.splice(0);
  }

  fail(): void {
    (this.#reliable ?? this.#qp).fail();
  }

  resume(): void {
    this.#unreliable?.resume();
    this.#rc?.resume();
  }

  /** Answers that are owed to the peer and have not left: what was delivered is acknowledged, whatever comes after. */
  owed(): Outgoing[] {
    const { gid } = this.#peer ?? {};
    if (gid === undefined) return [];
    return (this.#reliable?.owed() ?? []).map((packet) => ({ packet, destination: gid }));
  }

  /** Sees the owed replies before a reset. */
  onReset: (owed: Outgoing[]) => void = () => {};

  reset(psn: number): void {
    this.onReset(this.owed());
    this.#rc = this.#reliable = this.#unreliable = undefined;
    (this.info as { psn: number }).psn = psn;
    if (!this.#receives.shared) this.#receives.waiting = [];
  }

  get sendIndex(): undefined {
    return undefined;
  }

  drain(): void {
    this.rc.drain();
  }

  get draining(): boolean {
    return this.rc.draining;
  }

  change({ trafficClass: _, rateLimit: __, ...attributes }: AttributeChange): void {
    this.rc.change(attributes);
  }

  /** Annex A17.4.5: a connection hears the address that it is connected to, a datagram queue pair any. */
  hears(source: Uint8Array): boolean {
    if (this.#peer === undefined || sendsDatagrams(this.#options.service)) return true;
    return gidEquals(this.#peer.gid, source);
  }

  /** A packet that was addressed to it. @param grh 40 bytes */
  receive(packet: ModelPacket, grh: Uint8Array, now: number): void {
    this.#reliable?.receive(packet, now);
    this.#unreliable?.receive(packet, grh);
  }

  advance(now: number): void {
    this.#rc?.advance(now);
  }

  /** The next packet that may be sent now, with the GID it goes to. */
  next(now: number): Outgoing | undefined {
    const { gid } = this.#peer ?? {};
    if (gid === undefined) return undefined;
    const sentUpTo = this.#rc?.requester.sentUpTo ?? 0;
    const packet = this.#reliable?.transmit(now);
    if (packet !== undefined) {
      const again = rowOf(packet).isRequest && psnLessThan(packet.psn, sentUpTo);
      return { packet, destination: gid, ...(again ? { retransmission: this.rc.requester.cause } : {}) };
    }
    const next = this.#unreliable?.transmit();
    return next && { packet: next.packet, destination: next.destination?.gid ?? gid };
  }

  nextDeadline(): number {
    return this.#rc?.nextDeadline() ?? Number.POSITIVE_INFINITY;
  }
}
