/** The model on the network. */

import { Access } from '@node-roce/transport';
import { flowLabelFromQpns, sourcePortFromFlowLabel } from '@node-roce/wire';
import { decodePacket, encodePacket } from '../model/packet.ts';
import { ModelQp } from '../model/rc-qp.ts';
import type { ModelCompletion } from '../model/work.ts';
import type { ConnectionOptions, Endpoint, EndpointInfo, SimReceive, SimSend } from './endpoint.ts';
import type { SimPacket } from './wire.ts';

export interface ModelEndpointOptions {
  gid: Uint8Array;
  qpn: number;
  psn: number;
  arenaBytes: number;
  /** PSNs that may be out. */
  window?: number;
  timerFactor?: number;
}

const ALL_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

export class ModelEndpoint implements Endpoint {
  readonly gid: Uint8Array;
  readonly arena: Uint8Array;
  readonly info: EndpointInfo;
  readonly #options: ModelEndpointOptions;
  #peer: EndpointInfo | undefined;
  #qp: ModelQp | undefined;

  constructor(options: ModelEndpointOptions) {
    this.#options = options;
    this.gid = options.gid;
    this.arena = new Uint8Array(options.arenaBytes);
    // A base that is aligned and needs both words of an address.
    const base = 0x7f00_0000_0000n + BigInt(options.qpn) * 0x1000_0000n;
    this.info = { gid: options.gid, qpn: options.qpn, psn: options.psn, rkey: 0x4000 + options.qpn, base };
  }

  /** The queue pair, once connected: its state is open to scenarios. */
  get qp(): ModelQp {
    if (this.#qp === undefined) throw new Error('not connected');
    return this.#qp;
  }

  get state(): 'RTS' | 'ERR' | 'RESET' {
    return this.#qp?.state ?? 'RESET';
  }

  connect(peer: EndpointInfo, options: ConnectionOptions): void {
    this.#peer = peer;
    const { window = 128, timerFactor = 1, psn } = this.#options;
    const region = {
      rkey: this.info.rkey,
      base: this.info.base,
      bytes: this.arena,
      access: ALL_ACCESS,
      invalidatable: false,
    };
    this.#qp = new ModelQp(
      {
        ...options,
        qpn: this.info.qpn,
        destQpn: peer.qpn,
        accessFlags: options.qpAccessFlags,
        flowControl: options.credits,
        window,
        timerFactor,
        sqPsn: psn,
        rqPsn: peer.psn,
      },
      { regions: [region] },
    );
  }

  postSend({ offset, length, remoteOffset, rkey, ...request }: SimSend): void {
    const peer = this.#peer!;
    this.qp.postSend({
      ...request,
      local: this.arena.subarray(offset, offset + length),
      ...(remoteOffset === undefined
        ? {}
        : { remote: { va: peer.base + BigInt(remoteOffset), rkey: rkey ?? peer.rkey } }),
    });
  }

  postReceive({ wrId, offset, length }: SimReceive): void {
    this.qp.postReceive({ wrId, local: this.arena.subarray(offset, offset + length) });
  }

  pollSend(): ModelCompletion[] {
    return this.qp.sendCompletions.splice(0);
  }

  pollReceive(): ModelCompletion[] {
    return this.qp.receiveCompletions.splice(0);
  }

  fail(): void {
    this.qp.fail();
  }

  receive(packets: SimPacket[], now: number): void {
    for (const packet of packets) {
      if (packet.corrupt) continue; // what a wrong ICRC does
      const decoded = decodePacket(packet.bytes);
      if (decoded.ok && decoded.packet.destQpn === this.info.qpn) this.qp.receive(decoded.packet, now);
    }
  }

  advance(now: number): void {
    this.#qp?.advance(now);
  }

  transmit(now: number): SimPacket[] {
    const packets: SimPacket[] = [];
    if (this.#qp === undefined) return packets;
    const peer = this.#peer!;
    const sourcePort = sourcePortFromFlowLabel(flowLabelFromQpns(this.info.qpn, peer.qpn));
    for (let packet = this.#qp.transmit(now); packet !== undefined; packet = this.#qp.transmit(now)) {
      packets.push({
        bytes: encodePacket(packet),
        source: this.gid,
        destination: peer.gid,
        trafficClass: 0,
        sourcePort,
        corrupt: false,
      });
    }
    return packets;
  }

  nextDeadline(): number {
    return this.#qp?.nextDeadline() ?? Number.POSITIVE_INFINITY;
  }
}
