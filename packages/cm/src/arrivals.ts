/** Messages of peers: finds the connection that each one is about, takes in new requests, and answers what is nobody's. */
import {
  CM_LAYOUTS,
  type CmInput,
  type CmMessage,
  CmRejReason,
  cmNameAt,
  decodeCm,
  encodeCm,
  gidEquals,
  MAD_BYTES,
  MAD_HEADER_BYTES,
} from '@node-roce/wire';
import { alternatePathResponseTo, disconnectReplyTo, replyRefusal, requestRefusal } from './answers.ts';
import type { Connection } from './connection.ts';
import type { DatagramServices } from './datagram-services.ts';
import type { Directory } from './directory.ts';
import type { Listeners } from './listeners.ts';
import { DEFAULT_PKEY } from './messages.ts';
import type { CmCounters, CmHost, Route } from './parameters.ts';
import { serviceOf } from './transport.ts';
import { requestEvent } from './waiting.ts';

/** The parts of the connection manager that messages reach. */
interface Parts {
  host: CmHost;
  directory: Directory;
  listeners: Listeners;
  services: DatagramServices;
  counters: CmCounters;
  /** An id that is not in use. */
  draw(now: number): number;
  send(mad: Uint8Array, route: Route): void;
  /** Whether one more answer to a message of nobody's may go. */
  stray(now: number): boolean;
}

/** Both communication ids, as the peer names them. */
interface Ids {
  localCommId: number;
  remoteCommId: number;
}

/** Takes in the MADs of queue pair 1. */
export class Arrivals {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Takes in a MAD at `at`; anything may stand there. */
  receive(bytes: Uint8Array, at: number, from: Route, now: number): void {
    const { counters } = this.#parts;
    if (this.#isOverflow(bytes, at, from)) {
      counters.received++;
      counters.overflowed++;
      return;
    }
    const parsed = decodeCm(bytes, at);
    if (!parsed.ok) {
      counters.malformed++;
      return;
    }
    counters.received++;
    if (parsed.message.name === 'REQ') this.#request(parsed.message, bytes, at, from, now);
    else this.#dispatch(parsed.message, from, now);
  }

  #dispatch(message: Exclude<CmMessage, { name: 'REQ' }>, from: Route, now: number): void {
    const { directory, host, services } = this.#parts;
    switch (message.name) {
      case 'REP': {
        const connection = directory.peek(message.remoteCommId);
        if (connection) connection.reply(message, now);
        else this.#answerStray(from, now, replyRefusal(message));
        break;
      }
      case 'RTU':
        this.#find(message)?.readyToUse();
        break;
      case 'MRA':
        this.#findAnswered(message)?.delayed(message, now);
        break;
      case 'REJ':
        this.#findRejected(message)?.rejected(message, now);
        break;
      case 'DREQ': {
        const connection = directory.peek(message.remoteCommId);
        if (connection?.remoteId === message.localCommId) connection.disconnectRequest(message, now);
        else this.#answerStray(from, now, disconnectReplyTo(message));
        break;
      }
      case 'DREP':
        this.#find(message)?.disconnectReply(now);
        break;
      case 'LAP': {
        const connection = this.#find(message);
        if (connection && host.apm) connection.pathOffered(message, this.#offeredRoute(message));
        else this.#answerStray(from, now, alternatePathResponseTo(message, connection !== undefined));
        break;
      }
      case 'APR':
        this.#find(message)?.pathAnswered(message);
        break;
      case 'SIDR_REQ':
        services.request(message, from, now);
        break;
      case 'SIDR_REP':
        services.reply(message, from);
        break;
    }
  }

  // -------------------------------------------------------------- new requests

  /** A new request to a listener whose backlog is full: in a flood, most are such, and parsing them all would cost the others. */
  #isOverflow(bytes: Uint8Array, at: number, from: Route): boolean {
    if (bytes.length < at + MAD_BYTES || cmNameAt(bytes, at) !== 'REQ') return false;
    const { directory, listeners } = this.#parts;
    const fields = at + MAD_HEADER_BYTES;
    const { serviceId, localCaGuid, localCommId, localQpn } = CM_LAYOUTS.REQ;
    if (listeners.find(serviceId.get(bytes, fields))?.full !== true) return false;
    const guid = localCaGuid.get(bytes, fields);
    return (
      directory.idOfPeer(guid, localCommId.get(bytes, fields)) === undefined &&
      directory.idOfPeerQp(guid, localQpn.get(bytes, fields), from) === undefined
    );
  }

  /**
   * In this order: a copy, one from a queue pair that counts as connected (§12.9.8.3), one that is refused, and a new one.
   *
   * @param bytes where the message stands, at `at`
   */
  #request(message: CmMessage<'REQ'>, bytes: Uint8Array, at: number, from: Route, now: number): void {
    const { directory, listeners, counters, host, draw } = this.#parts;
    const { localCaGuid, localCommId, localQpn } = message;
    const known = directory.peek(directory.idOfPeer(localCaGuid, localCommId));
    if (known) {
      known.repeatedRequest(message, from);
      return;
    }
    const stale = directory.peek(directory.idOfPeerQp(localCaGuid, localQpn, from));
    if (stale) {
      this.#answerStray(from, now, requestRefusal(message, CmRejReason.STALE_CONNECTION));
      stale.stale(now);
      return;
    }
    const refusal = this.#refusalOf(message);
    if (refusal) {
      this.#answerStray(from, now, requestRefusal(message, refusal.reason, refusal.additionalInfo));
      return;
    }
    const listener = listeners.find(message.serviceId)!;
    if (listener.full || directory.isFull) {
      counters.overflowed++;
      return;
    }
    const id = draw(now);
    const request = { message, route: from, listener: listener.number };
    directory.addRequest(id, bytes, at, request);
    listener.hold(id);
    host.event(requestEvent(id, request));
  }

  #refusalOf(
    message: CmMessage<'REQ'>,
  ): { reason: number; additionalInfo?: Uint8Array | undefined } | undefined {
    const { gids, xrc = false } = this.#parts.host;
    const isHere = gids.some(({ gid }) => gidEquals(gid, message.primaryRemoteGid));
    // Linux has the same reason for a path of a partition that the port is not in (cm_init_av_by_path in cm.c).
    if (!isHere || !isOurPartition(message.pkey))
      return { reason: CmRejReason.INVALID_GID, additionalInfo: gids[0]?.gid };
    if (serviceOf(message, xrc) === undefined) return { reason: CmRejReason.INVALID_TRANSPORT_TYPE };
    if (!this.#parts.listeners.find(message.serviceId)) return { reason: CmRejReason.INVALID_SERVICE_ID };
    return undefined;
  }

  // ------------------------------------------------------- whose message it is

  /** The connection that both ids name. */
  #find({ localCommId, remoteCommId }: Ids): Connection | undefined {
    const connection = this.#parts.directory.peek(remoteCommId);
    if (connection?.remoteId === localCommId) return connection;
    this.#parts.counters.unexpected++;
    return undefined;
  }

  /** The same for an answer to REQ, whose sender we did not know by id. */
  #findAnswered(message: Ids): Connection | undefined {
    const connection = this.#parts.directory.peek(message.remoteCommId);
    return connection?.remoteId === 0 ? connection : this.#find(message);
  }

  /** A REJ for a timeout may not know our id: the sender's GUID and its own id name the connection (core/cm.c `cm_acquire_rejected_id`). */
  #findRejected(message: CmMessage<'REJ'>): Connection | undefined {
    const { directory, counters } = this.#parts;
    if (message.reason === CmRejReason.TIMEOUT && message.remoteCommId === 0) {
      const { buffer, byteOffset } = message.additionalInfo;
      const guid = new DataView(buffer, byteOffset).getBigUint64(0);
      const id = directory.idOfPeer(guid, message.localCommId);
      if (id === undefined) counters.unexpected++;
      return id === undefined ? undefined : directory.take(id);
    }
    return this.#findAnswered(message) && directory.take(message.remoteCommId);
  }

  /** The path of a LAP from here; undefined where its end is not ours. */
  #offeredRoute(message: CmMessage<'LAP'>): Route | undefined {
    const { gids } = this.#parts.host;
    const sgidIndex = gids.findIndex(({ gid }) => gidEquals(gid, message.alternateRemoteGid));
    if (sgidIndex < 0) return undefined;
    return {
      sgidIndex,
      gid: message.alternateLocalGid,
      trafficClass: message.alternateTrafficClass,
      hopLimit: message.alternateHopLimit,
      flowLabel: message.alternateFlowLabel,
    };
  }

  #answerStray(to: Route, now: number, answer: CmInput): void {
    if (this.#parts.stray(now)) this.#parts.send(encodeCm(answer), to);
  }
}

/** Whether a P_Key is of the default partition, the only one of a RoCE port; with full membership or limited. */
function isOurPartition(pkey: number): boolean {
  return (pkey & 0x7fff) === (DEFAULT_PKEY & 0x7fff);
}
