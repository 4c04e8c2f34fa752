/**
 * The reference model with its connection manager; a service that does as `rping -s` does: accepts, READs the buffer that its client names,
 * and SENDs; and a client that connects.
 */
import {
  type CmEvent,
  type CmFields,
  CmModel,
  decodePacket,
  encodePacket,
  ModelAccess,
  ModelDevice,
  type SimPacket,
  type SimQp,
  type SimQpOptions,
} from '@node-roce/sim';
import {
  AethKind,
  aethKind,
  GSI_QKEY,
  GSI_QPN,
  gidEquals,
  IpCmHeader,
  ipCmServiceId,
  NakCode,
  Opcode,
  opcodeInfo,
  PortSpace,
  psnDiff,
} from '@node-roce/wire';

type ModelDeviceOptions = ConstructorParameters<typeof ModelDevice>[0];
type Request = CmFields<'REQ'>;

/** Where the service listens: rping's port. */
export const SERVICE_ID = ipCmServiceId(PortSpace.TCP, 7174);

const CA_GUID = 0x0200_00ff_fe00_0009n;
const MESSAGE_BYTES = 16;
/** PSNs that it asks its peers to begin with. */
const FIRST_PSN = 0x1234;
/** UD data of the connection manager leaves from here. */
const SOURCE_PORT = 0xc0de;
const RC = 0;

/** What the model's client asks for; it is repeated after two packet lifetimes and the peer's time: 71 ms. */
const CALL = {
  maxCmRetries: 2,
  remoteResponseTimeout: 10,
  localResponseTimeout: 14,
  primaryAckTimeout: 14,
} as const;

/** By the names that rxe has for them. */
const NO_COUNTS = { out_of_seq_request: 0, duplicate_request: 0, rcvd_rnr_err: 0, rcvd_seq_err: 0 };
type Counts = Record<keyof typeof NO_COUNTS, number>;

/** The name of what a packet for a queue pair is counted as. @param ePsn the PSN that its responder expects */
function countedAs(bytes: Uint8Array, ePsn: number): keyof Counts | undefined {
  const decoded = decodePacket(bytes);
  if (!decoded.ok) return undefined;
  const { psn, opcode, aeth } = decoded.packet;
  if (opcode === Opcode.RC_ACKNOWLEDGE) {
    if (aeth?.syndrome === NakCode.PSN_SEQUENCE_ERROR) return 'rcvd_seq_err';
    return aeth !== undefined && aethKind(aeth.syndrome) === AethKind.RNR_NAK ? 'rcvd_rnr_err' : undefined;
  }
  if (!opcodeInfo(opcode)?.isRequest || psn === ePsn) return undefined;
  return psnDiff(psn, ePsn) > 0 ? 'out_of_seq_request' : 'duplicate_request';
}

/** Why a REQ is refused, as the layers of Linux do it: a REJ reason. */
export type Refusal = (request: Request, device: ListeningModel) => number | undefined;

/** By name: so that a test can leave one out. */
export const REFUSALS: Readonly<Record<string, Refusal>> = {
  gid: ({ primaryRemoteGid }, { gid }) => (gidEquals(primaryRemoteGid, gid) ? undefined : 12),
  'IP CM': ({ privateData }) => (IpCmHeader.version.get(privateData, 0) === 0 ? undefined : 28),
  service: ({ transportService }) => (transportService === RC ? undefined : 28),
};

/** The model's adapter, with somebody who listens. */
export class ListeningModel extends ModelDevice {
  readonly cm: CmModel;
  readonly #served = new Map<number, SimQp>();
  readonly #counts: Counts = { ...NO_COUNTS };
  /** Addresses that the client still has to connect to. */
  readonly #calls: Uint8Array[] = [];
  /** Queue pairs of the client, which exchange nothing. */
  readonly #asked = new Map<number, SimQp>();
  /** Reliable connections. */
  readonly #pairs = new Map<number, ReturnType<ModelDevice['createQp']>>();
  #ids = 0x5000_0000;

  constructor(options: ModelDeviceOptions) {
    super(options);
    this.cm = new CmModel({ caGuid: CA_GUID, random: () => this.#ids++ });
    this.cm.listen(SERVICE_ID);
  }

  /** Reasons to refuse a REQ. */
  refusals(): readonly Refusal[] {
    return Object.values(REFUSALS);
  }

  override receive(packets: SimPacket[], now: number): void {
    const others: SimPacket[] = [];
    for (const packet of packets) {
      if (this.#hears(packet, now)) continue;
      this.#count(packet);
      others.push(packet);
    }
    super.receive(others, now);
    this.#serve(now);
  }

  #hears({ bytes, source, corrupt }: SimPacket, now: number): boolean {
    const decoded = decodePacket(bytes);
    if (!decoded.ok || decoded.packet.destQpn !== GSI_QPN) return false;
    const { deth, payload } = decoded.packet;
    if (!corrupt && deth?.qkey === GSI_QKEY) this.hearMad(payload, source, now);
    return true;
  }

  protected hearMad(mad: Uint8Array, source: Uint8Array, now: number): void {
    this.cm.receive(mad, source, now);
  }

  override createQp(options: SimQpOptions): ReturnType<ModelDevice['createQp']> {
    const pair = super.createQp(options);
    if (options.service === 'RC') this.#pairs.set(pair.info.qpn, pair);
    return pair;
  }

  #count({ bytes, corrupt }: SimPacket): void {
    const destQpn = (bytes[5] << 16) | (bytes[6] << 8) | bytes[7];
    const pair = this.#pairs.get(destQpn);
    if (corrupt || pair?.connectedTo === undefined) return;
    const name = countedAs(bytes, pair.rc.responder.ePsn);
    if (name !== undefined) this.#counts[name]++;
  }

  /** Counts of packets, by the names that rxe has for them. */
  counters(): Readonly<Record<string, number>> {
    return { ...this.#counts };
  }

  /** Makes the client connect. */
  call(gid: Uint8Array): void {
    this.#calls.push(gid);
  }

  #connect(gid: Uint8Array, now: number): void {
    const qp = this.createQp({ service: 'RC', psn: FIRST_PSN });
    const { qpn } = qp.info;
    const fields = { ...CALL, qpn, startingPsn: FIRST_PSN, serviceId: SERVICE_ID };
    this.#asked.set(this.cm.connect(gid, fields, now), qp);
  }

  /** The service: takes its events, and goes on with its connections. */
  #serve(now: number): void {
    for (const gid of this.#calls.splice(0)) this.#connect(gid, now);
    for (const event of this.cm.events.splice(0)) this.#take(event, now);
    for (const [handle, qp] of this.#served) {
      this.#goOn(qp);
      if (qp.state === 'ERR') this.cm.disconnect(handle, now);
    }
  }

  #take({ kind, handle, message }: CmEvent, now: number): void {
    if (kind === 'request' && message?.name === 'REQ') this.#accept(handle, message, now);
    if (kind === 'reply') this.cm.ready(handle, now);
    if (kind === 'disconnecting') this.cm.disconnect(handle, now);
    if (kind === 'gone') this.#end(handle);
  }

  #accept(handle: number, request: Request, now: number): void {
    for (const refusal of this.refusals()) {
      const reason = refusal(request, this);
      if (reason !== undefined) {
        this.cm.reject(handle, now, reason);
        return;
      }
    }
    const qp = this.createQp({ service: 'RC', psn: request.startingPsn });
    const { primaryLocalGid: gid, qpn, initiatorDepth, responderResources } = request;
    qp.connect(
      { gid, qpn, psn: FIRST_PSN, rkey: 0, base: 0n },
      {
        pathMtu: 128 << request.pathMtu,
        timeout: request.primaryAckTimeout,
        retryCnt: request.retryCount,
        rnrRetry: request.rnrRetryCount,
        minRnrTimer: 12,
        maxRdAtomic: responderResources,
        maxDestRdAtomic: initiatorDepth,
        qpAccessFlags: ModelAccess.REMOTE_READ,
        credits: false,
      },
    );
    this.#served.set(handle, qp);
    this.#postReceive(qp);
    const fields = { qpn: qp.info.qpn, startingPsn: FIRST_PSN, initiatorDepth: responderResources };
    this.cm.accept(handle, { ...fields, responderResources: initiatorDepth }, now);
  }

  #postReceive(qp: SimQp): void {
    qp.postReceive({ wrId: 0, offset: 0, length: MESSAGE_BYTES });
  }

  /** The client names its buffer: it is READ; then a SEND reports it. */
  #goOn(qp: SimQp): void {
    for (const { status } of qp.pollReceive()) {
      if (status !== 'SUCCESS') continue;
      const view = new DataView(this.arena.buffer);
      const [remoteAddress, rkey, length] = [view.getBigUint64(0), view.getUint32(8), view.getUint32(12)];
      this.#postReceive(qp);
      if (length > this.arena.length) continue;
      qp.postSend({ wrId: 1, opcode: 'RDMA_READ', offset: 0, length, remoteAddress, rkey, signaled: true });
    }
    for (const { status, wrId } of qp.pollSend())
      if (status === 'SUCCESS' && wrId === 1)
        qp.postSend({ wrId: 2, opcode: 'SEND', offset: 0, length: MESSAGE_BYTES, signaled: true });
  }

  #end(handle: number): void {
    const qp = this.#served.get(handle) ?? this.#asked.get(handle);
    if (qp === undefined) return;
    this.#served.delete(handle);
    this.#asked.delete(handle);
    this.destroyQp(qp);
  }

  override advance(now: number): void {
    super.advance(now);
    this.cm.advance(now);
    this.#serve(now);
  }

  override transmit(now: number): SimPacket[] {
    this.#serve(now);
    const mads = this.cm
      .take()
      .flatMap(({ to, bytes }) => this.sendMad(bytes).map((mad) => this.#packet(mad, to)));
    return [...super.transmit(now), ...mads];
  }

  /** The MADs that leave for one that the connection manager sends. */
  protected sendMad(mad: Uint8Array): readonly Uint8Array[] {
    return [mad];
  }

  #packet(payload: Uint8Array, destination: Uint8Array): SimPacket {
    const bytes = encodePacket({
      opcode: Opcode.UD_SEND_ONLY,
      destQpn: GSI_QPN,
      psn: 0,
      ackReq: false,
      solicited: false,
      pkey: 0xffff,
      deth: { qkey: GSI_QKEY, srcQpn: GSI_QPN },
      payload,
    });
    return { bytes, source: this.gid, destination, trafficClass: 0, sourcePort: SOURCE_PORT, corrupt: false };
  }

  override nextDeadline(): number {
    return Math.min(super.nextDeadline(), this.cm.nextDeadline());
  }
}
