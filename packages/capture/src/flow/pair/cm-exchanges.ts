/**
 * Exchanges of the connection manager (IBTA vol 1 §12.6, §12.9): who asked whom for a connection, what they agreed on, and
 * how it went. Messages belong together by the communication IDs of both ends; a UD service is resolved under one request ID.
 */
import {
  CM_LAYOUTS,
  CM_TITLES,
  CmMraMessage,
  type CmName,
  CmRejMessage,
  CmSidrStatus,
  cmFieldsAt,
  cmNameAt,
  MAD_HEADER_BYTES,
  MadHeader,
  rejectReason,
  serviceName,
  sidrStatus,
} from '@node-roce/wire';
import type { Addresses, RocePacket } from '../../read/packet.ts';
import { qpnOfRep } from './cm.ts';

/** Exchanges that are kept; later ones are counted. */
const MAX_EXCHANGES = 10_000;
/** Communication IDs that an exchange is found by; it has two. */
const MAX_IDS = 8;
/** Messages listed of an exchange. */
const MAX_MESSAGES = 64;
/** Gaps in the PSNs of queue pair 1 that are listed. */
const MAX_GAPS = 1000;
/** Hosts whose PSNs are followed. */
const MAX_HOSTS = 10_000;
/** PSNs of a host that a copy is found among, and for how long, ns: queue pair 1 of an adapter that restarts counts from 0 again. */
const RECENT_PSNS = 8;
const MAX_COPY_LAG = 1e9;
/** More missing PSNs than this are no losses: the sender started anew, or the capture stopped. */
const MAX_GAP = 64;

/** A message of an exchange. */
export interface CmEvent {
  name: CmName;
  /** As Wireshark names it: `ConnectRequest`. */
  title: string;
  from: 'active' | 'passive';
  frame: number;
  time: number;
  /** Sent before in this exchange. */
  isRetry: boolean;
}

/** One end of an exchange. */
export interface CmParty {
  address: string;
  /** −1: not known. */
  qpn: number;
  startingPsn: number;
  /** READs and atomics that it serves, and that it wants outstanding. */
  responderResources: number;
  initiatorDepth: number;
}

export type CmOutcome =
  /** An RTU, or a message that ends a connection: without a REP in the capture, too, as nobody sends them before. */
  | 'established'
  /** A REP, and neither of them in the capture. */
  | 'accepted'
  | 'rejected'
  /** Neither REP nor REJ to the REQ in the capture, and no message that is sent after one only. */
  | 'unanswered'
  /** The capture begins within it: no REQ. */
  | 'partial';

/** An exchange as JSON has it. */
export interface CmExchange {
  kind: 'connection' | 'datagram-service';
  active: CmParty;
  passive: CmParty;
  /** `TCP port 7174`, or the service ID in hexadecimal. */
  service: string | undefined;
  outcome: CmOutcome;
  /** Both ends agreed to end the connection, or one of them asked for it. */
  isDisconnected: boolean;
  /** The reason, and who gave it. */
  reject: { code: number; reason: string; by: 'active' | 'passive'; frame: number; time: number } | undefined;
  /** Of the REQ; undefined without one. */
  offered:
    | {
        /** Bytes. */
        pathMtu: number | undefined;
        /** Code of the local ACK timeout: 4.096 µs · 2^code; 0: none. */
        ackTimeout: number;
        retryCount: number;
        rnrRetryCount: number;
        maxCmRetries: number;
        /** Code of the time within which the passive side shall answer. */
        remoteCmResponseTimeout: number;
        serviceLevel: number;
        trafficClass: number;
        flowLabel: number;
        hopLimit: number;
      }
    | undefined;
  /** From the first REQ to its first answer, and to the RTU, nanoseconds. */
  answerTime: number | undefined;
  connectTime: number | undefined;
  start: number;
  end: number;
  firstFrame: number;
  lastFrame: number;
  /** Messages that came again. */
  retries: number;
  messages: CmEvent[];
}

/** PSNs of queue pair 1 that a host skipped: datagrams that are not in the capture. */
export interface GsiGap {
  address: string;
  missing: number;
  firstMissing: number;
  /** Nanoseconds and frames of the datagrams before and after it. */
  start: number;
  end: number;
  before: number;
  after: number;
}

type Party = Omit<CmParty, 'address'> & { address: number };

interface Exchange extends Omit<CmExchange, 'active' | 'passive'> {
  active: Party;
  passive: Party;
  transactionId: bigint;
  /** Communication IDs that it is filed under. */
  ids: number;
  seen: Set<string>;
}

interface Gsi {
  psn: number;
  frame: number;
  time: number;
  /** The last few. */
  recent: { psn: number; time: number }[];
}

/** Follows the datagrams of queue pair 1. */
export class CmExchanges {
  readonly #all: Exchange[] = [];
  readonly #byId = new Map<string, Exchange>();
  readonly #gsi = new Map<string, Gsi>();
  readonly #gaps: (Omit<GsiGap, 'address'> & { address: number })[] = [];
  /** Exchanges past those that are kept. */
  #tooMany = 0;

  /** Takes a packet to queue pair 1; one that is no message of the connection manager only counts by its PSN. */
  take(packet: RocePacket): void {
    if (this.#noteDatagram(packet)) return;
    const { bytes, payload, end, info } = packet;
    if (!info.hasPayload || payload + MAD_HEADER_BYTES > end) return;
    const name = cmNameAt(bytes, payload);
    if (name === undefined) return;
    // Of a cut message the missing fields would read as zeros.
    const needed = payload + MAD_HEADER_BYTES + NEEDED[name];
    if (needed > end) return;
    const exchange = this.#exchangeOf(name, packet);
    if (exchange === undefined) return;
    this.#note(exchange, name, packet);
    this.#apply(exchange, name, packet);
  }

  results(addresses: Addresses): CmExchange[] {
    return this.#all.map(({ seen: _, transactionId: __, ids: ___, active, passive, ...rest }) => ({
      ...rest,
      active: { ...active, address: addresses.text(active.address) },
      passive: { ...passive, address: addresses.text(passive.address) },
    }));
  }

  gaps(addresses: Addresses): GsiGap[] {
    return this.#gaps.map((gap) => ({ ...gap, address: addresses.text(gap.address) }));
  }

  get tooMany(): number {
    return this.#tooMany;
  }

  /**
   * Notes a datagram and the PSNs missing before it: a host counts those of all that its queue pair 1 sends (IBTA vol 1 §9.8.3), also
   * when it sends a message again.
   * @returns whether a mirror shows it again
   */
  #noteDatagram({ source, vni, psn, frame, time }: RocePacket): boolean {
    const key = `${source} ${vni}`;
    const before = this.#gsi.get(key);
    if (before === undefined) {
      if (this.#gsi.size < MAX_HOSTS) this.#gsi.set(key, { psn, frame, time, recent: [{ psn, time }] });
      return false;
    }
    if (before.recent.some((seen) => seen.psn === psn && time - seen.time < MAX_COPY_LAG)) return true;
    before.recent.push({ psn, time });
    if (before.recent.length > RECENT_PSNS) before.recent.shift();
    const missing = ((psn - before.psn) & 0xff_ffff) - 1;
    // It was overtaken.
    if (missing > 0x80_0000 && time - before.time < MAX_COPY_LAG) return false;
    if (missing > 0 && missing <= MAX_GAP && this.#gaps.length < MAX_GAPS) {
      const firstMissing = (before.psn + 1) & 0xff_ffff;
      const [start, end] = [before.time, time];
      this.#gaps.push({
        address: source,
        missing,
        firstMissing,
        start,
        end,
        before: before.frame,
        after: frame,
      });
    }
    before.psn = psn;
    before.frame = frame;
    before.time = time;
    return false;
  }

  #exchangeOf(name: CmName, packet: RocePacket): Exchange | undefined {
    const { bytes, payload, source, destination, vni } = packet;
    if (name === 'REQ' || name === 'SIDR_REQ') {
      const id = name === 'REQ' ? cmFieldsAt('REQ', bytes, payload).localCommId : idOf(packet);
      const key = keyOf(name === 'REQ' ? '' : 'S', vni, source, id);
      const known = this.#byId.get(key);
      const transactionId = MadHeader.transactionId.get(bytes, payload);
      if (known !== undefined && known.transactionId === transactionId) return known;
      const opened = this.#open(packet, transactionId, name === 'REQ' ? 'connection' : 'datagram-service');
      if (opened !== undefined) this.#byId.set(key, opened);
      return opened;
    }
    if (name === 'SIDR_REP') {
      const id = idOf(packet);
      return this.#byId.get(keyOf('S', vni, destination, id));
    }
    const { localCommId, remoteCommId } = cmFieldsAt(name as 'RTU', bytes, payload);
    // A host without a listener refuses with an ID of 0: it has none.
    const own = localCommId === 0 ? undefined : keyOf('', vni, source, localCommId);
    const found =
      this.#byId.get(keyOf('', vni, destination, remoteCommId)) ??
      (own === undefined ? undefined : this.#byId.get(own));
    if (found !== undefined) {
      if (own !== undefined && found.ids < MAX_IDS && this.#byId.get(own) !== found) {
        found.ids++;
        this.#byId.set(own, found);
      }
      return found;
    }
    const opened = this.#open(packet, 0n);
    if (opened === undefined) return undefined;
    opened.outcome = 'partial';
    if (isOfPassive(name, packet)) {
      opened.active.address = destination;
      opened.passive.address = source;
    }
    if (own !== undefined) this.#byId.set(own, opened);
    if (remoteCommId !== 0) this.#byId.set(keyOf('', vni, destination, remoteCommId), opened);
    return opened;
  }

  #open(
    packet: RocePacket,
    transactionId: bigint,
    kind: Exchange['kind'] = 'connection',
  ): Exchange | undefined {
    if (this.#all.length >= MAX_EXCHANGES) {
      this.#tooMany++;
      return undefined;
    }
    const { source, destination, time, frame } = packet;
    const exchange: Exchange = {
      kind,
      active: newParty(source),
      passive: newParty(destination),
      service: undefined,
      outcome: 'unanswered',
      isDisconnected: false,
      reject: undefined,
      offered: undefined,
      answerTime: undefined,
      connectTime: undefined,
      start: time,
      end: time,
      firstFrame: frame,
      lastFrame: frame,
      retries: 0,
      messages: [],
      transactionId,
      ids: 1,
      seen: new Set(),
    };
    this.#all.push(exchange);
    return exchange;
  }

  #note(exchange: Exchange, name: CmName, { source, frame, time }: RocePacket): void {
    const from = source === exchange.active.address ? 'active' : 'passive';
    const isRetry = exchange.seen.has(`${name} ${from}`);
    exchange.seen.add(`${name} ${from}`);
    if (isRetry) exchange.retries++;
    exchange.end = time;
    exchange.lastFrame = frame;
    if (exchange.messages.length < MAX_MESSAGES)
      exchange.messages.push({ name, title: CM_TITLES[name], from, frame, time, isRetry });
  }

  #apply(exchange: Exchange, name: CmName, packet: RocePacket): void {
    const { bytes, payload, time, frame } = packet;
    const { active, passive } = exchange;
    // A host may connect to itself.
    const isFromPassive = packet.source !== active.address || active.address === passive.address;
    const isAnswer = name !== 'REQ' && name !== 'SIDR_REQ' && isFromPassive;
    if (isAnswer && exchange.outcome !== 'partial') exchange.answerTime ??= time - exchange.start;
    switch (name) {
      case 'REQ':
        applyReq(exchange, cmFieldsAt('REQ', bytes, payload));
        break;
      case 'REP': {
        const rep = cmFieldsAt('REP', bytes, payload);
        Object.assign(exchange.passive, {
          qpn: qpnOfRep(rep),
          startingPsn: rep.startingPsn,
          responderResources: rep.responderResources,
          initiatorDepth: rep.initiatorDepth,
        });
        if (exchange.outcome === 'unanswered') exchange.outcome = 'accepted';
        break;
      }
      case 'RTU':
        if (!isOpen(exchange)) break;
        exchange.outcome = 'established';
        exchange.connectTime = time - exchange.start;
        break;
      case 'REJ': {
        const { reason } = cmFieldsAt('REJ', bytes, payload);
        const by = packet.source === exchange.active.address ? 'active' : 'passive';
        exchange.reject ??= { code: reason, reason: rejectReason(reason), by, frame, time };
        exchange.outcome = 'rejected';
        break;
      }
      case 'DREQ':
      case 'DREP':
        // Nobody disconnects what was not connected: the RTU is not in the capture.
        if (isOpen(exchange)) exchange.outcome = 'established';
        exchange.isDisconnected = true;
        break;
      case 'SIDR_REQ':
        exchange.service = serviceName(cmFieldsAt('SIDR_REQ', bytes, payload).serviceId);
        break;
      case 'SIDR_REP': {
        const { status, qpn } = cmFieldsAt('SIDR_REP', bytes, payload);
        exchange.passive.qpn = qpn;
        if (status === CmSidrStatus.SUCCESS) {
          exchange.outcome = 'established';
          exchange.connectTime ??= time - exchange.start;
        } else {
          exchange.outcome = 'rejected';
          exchange.reject ??= { code: status, reason: sidrStatus(status), by: 'passive', frame, time };
        }
        break;
      }
    }
  }
}

/** Whether the first message that the capture has of an exchange comes from the passive side: the answers to a REQ. */
function isOfPassive(name: CmName, { bytes, payload }: RocePacket): boolean {
  if (name === 'REP') return true;
  if (name === 'REJ') return cmFieldsAt('REJ', bytes, payload).messageRejected === CmRejMessage.REQ;
  return name === 'MRA' && cmFieldsAt('MRA', bytes, payload).messageMraed === CmMraMessage.REQ;
}

/** The capture has the REQ, and has not shown yet whether a connection came about. */
const isOpen = ({ outcome }: Exchange): boolean => outcome === 'unanswered' || outcome === 'accepted';

function applyReq(exchange: Exchange, req: ReturnType<typeof cmFieldsAt<'REQ'>>): void {
  exchange.service = serviceName(req.serviceId);
  Object.assign(exchange.active, {
    qpn: req.localQpn,
    startingPsn: req.startingPsn,
    responderResources: req.responderResources,
    initiatorDepth: req.initiatorDepth,
  });
  exchange.offered = {
    pathMtu: req.pathMtu >= 1 && req.pathMtu <= 5 ? 128 << req.pathMtu : undefined,
    ackTimeout: req.primaryAckTimeout,
    retryCount: req.retryCount,
    rnrRetryCount: req.rnrRetryCount,
    maxCmRetries: req.maxCmRetries,
    remoteCmResponseTimeout: req.remoteCmResponseTimeout,
    serviceLevel: req.primaryServiceLevel,
    trafficClass: req.primaryTrafficClass,
    flowLabel: req.primaryFlowLabel,
    hopLimit: req.primaryHopLimit,
  };
}

/** Bytes of each message up to its private data, from the MAD header on. */
const NEEDED = Object.fromEntries(
  Object.entries(CM_LAYOUTS).map(([name, layout]) => [
    name,
    Math.max(
      ...Object.entries(layout).map(([field, { at, bytes }]) =>
        field === 'privateData' || field === 'additionalInfo' || field === 'localCaGuid' ? 0 : at + bytes,
      ),
    ),
  ]),
) as Record<CmName, number>;

const idOf = ({ bytes, payload }: RocePacket): number => cmFieldsAt('SIDR_REQ', bytes, payload).requestId;

const keyOf = (kind: string, vni: number, address: number, id: number): string =>
  `${kind}${vni} ${address} ${id}`;

const newParty = (address: number): Party => ({
  address,
  qpn: -1,
  startingPsn: -1,
  responderResources: -1,
  initiatorDepth: -1,
});
