/**
 * A connection that the tester opens at the device's connection manager, as a rule sees it.
 *
 * - messages to the device: `req`, `rtu`, `dreq`, `toPeer`, `mad`
 * - messages of the device: `next`, `all`; with a judgement: `accepted`, `established`, `refused`, `notAccepted`
 * - packets of the queue pairs: `send`, `answer`, `packets`; PSNs are relative, as in `Session`
 */
import {
  type CmFields,
  type CmInput,
  type CmMessage,
  type CmName,
  CmRejMessage,
  CmRejReason,
  decodeCm,
  encodeCm,
  encodeIpCmHeader,
  GSI_QKEY,
  GSI_QPN,
  gidFromText,
  MAD_BYTES,
  type OpcodeName,
  type PacketInput,
  psnAdd,
  psnDiff,
} from '@node-roce/wire';
import type { Device } from './device.ts';
import type { Entry, Line } from './line.ts';
import type { CaseConnection } from './passive/connection.ts';

/** The part of a case that these sessions use. */
export interface CmPlaying {
  readonly line: Pick<Line, 'tester' | 'device'>;
  readonly device: Pick<Device, 'call'>;
  /** ms, as in `Waits`. */
  readonly waits: { quiet: number; patience: number };
  want(ok: boolean, text: string): boolean;
  send(packet: PacketInput): Entry;
  wait(done: () => boolean, ms: number): Promise<void>;
  pass(ms: number): Promise<void>;
}

/** Numbers of a connection, and the service that it asks for. */
export interface CmNumbers {
  /** Communication id of the tester. */
  id: number;
  guid: bigint;
  qpn: number;
  /** First PSN that the device sends. */
  psn: number;
  serviceId: bigint;
}

/** A message of the device, with the time at which it came. */
export type Heard<N extends CmName = CmName> = CmMessage<N> & { time: number };

/** How a MAD differs from the usual one. */
interface MadOptions {
  qkey?: number;
  /** Bytes of the MAD that leave. */
  length?: number;
  /** Changes its header. */
  spoil?(bytes: Uint8Array): void;
}

/** Fields of a packet of the queue pair that differ from the usual ones. */
type DataOptions = Pick<PacketInput, 'extensions' | 'payload'>;

/** The one that REQ asks for. */
const PATH_MTU = 1024;
/** ms between RTU and what counts on it. */
const SETTLES = 20;
/** ms that the device may take to release a connection that no rule looks at any more. */
const RELEASES = 300;
/** Tries to find somebody listening, and ms between two. */
const TRIES = { first: 4, again: 40 } as const;
const PAUSE = 150;

/** An address as IP CM has it: IPv4 in the last bytes. */
function ipCmAddress(ip: string): Uint8Array {
  const gid = gidFromText(ip);
  return ip.includes(':') ? gid : Uint8Array.from([...new Uint8Array(12), ...gid.subarray(12)]);
}

/** Whether one of a message's two ids is this one: the ids stand behind the header of the MAD. */
function mentions(mad: Uint8Array, id: number): boolean {
  const { buffer, byteOffset } = mad;
  const ids = new DataView(buffer, byteOffset + 24, 8);
  return ids.getUint32(0) === id || ids.getUint32(4) === id;
}

const isFor = (message: CmMessage, id: number): boolean =>
  ('remoteCommId' in message && message.remoteCommId === id) ||
  ('requestId' in message && message.requestId === id);

/** `REJ reason 28`. */
const inWords = (message: CmMessage): string =>
  'reason' in message
    ? `${message.name} reason ${message.reason}`
    : 'status' in message
      ? `${message.name} status ${message.status}`
      : message.name;

/** A connection, as a rule of the connection manager sees it. */
export class CmSession {
  readonly numbers: CmNumbers;
  /** The device's answer, once it came. */
  rep: Heard<'REP'> | undefined;
  readonly #case: CmPlaying;
  #inbox: Heard[] = [];
  #packets: Entry[] = [];
  #isReleased = false;

  constructor(t: CmPlaying, numbers: CmNumbers) {
    this.#case = t;
    this.numbers = numbers;
  }

  /** The queue pairs, if REQ was accepted. */
  get connection(): CaseConnection | undefined {
    if (this.rep === undefined) return undefined;
    const { localQpn: deviceQpn, startingPsn: psn } = this.rep;
    return { testerQpn: this.numbers.qpn, deviceQpn, psn, pathMtu: PATH_MTU };
  }

  arrived(entry: Entry): void {
    const { packet, time } = entry;
    if (packet?.bth.destQp === this.numbers.qpn) this.#packets.push(entry);
    if (packet?.bth.destQp !== GSI_QPN || packet.payload.length !== MAD_BYTES) return;
    // Hundreds of sessions may look at each message.
    if (!mentions(packet.payload, this.numbers.id)) return;
    const decoded = decodeCm(packet.payload);
    if (!decoded.ok || !isFor(decoded.message, this.numbers.id)) return;
    // An MRA asks for time: the answer is still to come.
    if (decoded.message.name !== 'MRA') this.#inbox.push({ ...decoded.message, time });
  }

  // Messages to the device.

  get transactionId(): bigint {
    return BigInt(this.numbers.id) << 8n;
  }

  mad(message: CmInput, { qkey = GSI_QKEY, length = MAD_BYTES, spoil }: MadOptions = {}): Entry {
    const bytes = encodeCm({ transactionId: this.transactionId, ...message });
    spoil?.(bytes);
    return this.#case.send({
      bth: { opcode: 'UD_SEND_ONLY', destQp: GSI_QPN, migReq: true },
      extensions: { deth: { qkey, srcQp: GSI_QPN } },
      payload: bytes.subarray(0, length),
    });
  }

  /** Asks for a connection: RC, a path MTU of 1024. */
  req(changes: Partial<CmFields<'REQ'>> & { ipCmVersion?: number } = {}, options?: MadOptions): Entry {
    const { ipCmVersion = 0, ...fields } = changes;
    const { tester, device } = this.#case.line;
    const { id, guid, qpn, psn, serviceId } = this.numbers;
    const privateData = encodeIpCmHeader({
      version: ipCmVersion,
      ipVersion: tester.ip.includes(':') ? 6 : 4,
      sourcePort: 40_000 + (id & 0xfff),
      source: ipCmAddress(tester.ip),
      destination: ipCmAddress(device.ip),
    });
    const usual: CmInput<'REQ'> = {
      name: 'REQ',
      localCommId: id,
      serviceId,
      localCaGuid: guid,
      localQpn: qpn,
      startingPsn: psn,
      responderResources: 4,
      initiatorDepth: 4,
      remoteCmResponseTimeout: 8,
      localCmResponseTimeout: 14,
      maxCmRetries: 3,
      retryCount: 3,
      rnrRetryCount: 6,
      pkey: 0xffff,
      pathMtu: 3,
      primaryLocalLid: 0xffff,
      primaryRemoteLid: 0xffff,
      primaryLocalGid: gidFromText(tester.ip),
      primaryRemoteGid: gidFromText(device.ip),
      primaryHopLimit: 64,
      primaryAckTimeout: 14,
      privateData,
    };
    return this.mad({ ...usual, ...fields }, options);
  }

  /** A message with the ids of both sides. */
  toPeer(message: CmInput): void {
    const remoteCommId = this.rep?.localCommId ?? 0;
    this.mad({ localCommId: this.numbers.id, remoteCommId, ...message } as CmInput);
  }

  async rtu(): Promise<void> {
    this.toPeer({ name: 'RTU' });
    await this.#case.pass(SETTLES);
  }

  dreq(changes: Partial<CmFields<'DREQ'>> = {}): void {
    this.toPeer({ name: 'DREQ', remoteQpn: this.rep?.localQpn ?? 0, ...changes });
  }

  // Messages of the device.

  /** The next message, or the next with a name: those before it are dropped. Undefined: silence. */
  async next<N extends CmName>(name?: N, ms = this.#case.waits.patience): Promise<Heard<N> | undefined> {
    const fits = (heard: Heard) => name === undefined || heard.name === name;
    await this.#case.wait(() => this.#inbox.some(fits), ms);
    const at = this.#inbox.findIndex(fits);
    // TypeScript does not see that the name is N.
    return at < 0 ? undefined : (this.#inbox.splice(0, at + 1)[at] as unknown as Heard<N>);
  }

  /** All that come in `ms`. */
  async all(ms = this.#case.waits.quiet): Promise<Heard[]> {
    await this.#case.pass(ms);
    return this.#inbox.splice(0);
  }

  list(messages: readonly CmMessage[]): string {
    return messages.map(inWords).join(', ') || 'silence';
  }

  /** A REP has to come. */
  async accepted(): Promise<Heard<'REP'> | undefined> {
    const answer = await this.next(undefined, 2 * this.#case.waits.patience);
    if (answer?.name === 'REP') this.rep = answer;
    this.#case.want(this.rep !== undefined, `REQ: wanted REP, got ${answer ? inWords(answer) : 'silence'}`);
    return this.rep;
  }

  /** The whole exchange: a connection that is open. */
  async established(changes?: Partial<CmFields<'REQ'>>): Promise<Heard<'REP'> | undefined> {
    this.req(changes);
    const rep = await this.accepted();
    if (rep !== undefined) await this.rtu();
    return rep;
  }

  /** The next message has to be a REJ with one of these reasons. */
  async refused(reasons: readonly number[], what: string): Promise<void> {
    const answer = await this.next();
    if (answer?.name === 'REP') this.rep = answer;
    const is = answer?.name === 'REJ' && reasons.includes(answer.reason);
    const got = answer === undefined ? 'silence' : inWords(answer);
    this.#case.want(is, `${what}: wanted REJ reason ${reasons.join(' or ')}, got ${got}`);
  }

  /** A REJ with any reason, or silence; no REP. */
  async notAccepted(what: string): Promise<void> {
    const answers = await this.all();
    const rep = answers.find((message) => message.name === 'REP');
    if (rep?.name === 'REP') this.rep = rep;
    this.#case.want(rep === undefined, `${what}: accepted`);
  }

  /**
   * Waits until somebody listens, by a connection that ends at once.
   * @param before a service was seen there: it may be started again for each connection
   * @returns false if nobody does
   */
  async listening(before: boolean): Promise<boolean> {
    for (let i = before ? TRIES.again : TRIES.first; i > 0; i--) {
      this.req();
      const answer = await this.next();
      if (answer?.name === 'REP') {
        this.rep = answer;
        await this.rtu();
        await this.close();
      }
      if (
        answer !== undefined &&
        !(answer.name === 'REJ' && answer.reason === CmRejReason.INVALID_SERVICE_ID)
      )
        return true;
      await this.#case.pass(PAUSE);
    }
    return false;
  }

  /** Takes the REP back, as a program does. */
  refuse(): void {
    this.toPeer({ name: 'REJ', messageRejected: CmRejMessage.REP, reason: CmRejReason.CONSUMER_DEFINED });
  }

  /** REJ for a timeout, as from a side that never heard the REP: by the tester's CA GUID instead of the device's id. */
  giveUp(): void {
    const { id, guid } = this.numbers;
    const additionalInfo = new Uint8Array(8);
    new DataView(additionalInfo.buffer).setBigUint64(0, guid);
    this.mad({
      name: 'REJ',
      localCommId: id,
      messageRejected: CmRejMessage.OTHER,
      reason: CmRejReason.TIMEOUT,
      additionalInfoLength: additionalInfo.length,
      additionalInfo,
    });
  }

  // Packets of the queue pairs.

  /** A request with the PSN `n` of the tester's. */
  send(opcode: OpcodeName, n: number, options: DataOptions = {}): void {
    const psn = psnAdd(this.rep?.startingPsn ?? 0, n);
    this.#data(opcode, psn, true, options);
  }

  /** A response with the PSN `n` of the device's requests. */
  answer(
    opcode: OpcodeName,
    n: number,
    { extensions, ...options }: DataOptions & { msn?: number } = {},
  ): void {
    const { msn = 1, ...rest } = options;
    const aeth = opcode === 'RC_RDMA_READ_RESPONSE_MIDDLE' ? {} : { aeth: { syndrome: 0x1f, msn } };
    this.#data(opcode, psnAdd(this.numbers.psn, n), false, {
      ...rest,
      extensions: { ...aeth, ...extensions },
    });
  }

  #data(opcode: OpcodeName, psn: number, ackReq: boolean, options: DataOptions): void {
    const bth = { opcode, destQp: this.rep?.localQpn ?? 0, psn, ackReq, migReq: true };
    this.#case.send({ bth, ...options });
  }

  /** The first packet that fits; the others stay. */
  async packet(fits: (entry: Entry) => boolean, ms = this.#case.waits.patience): Promise<Entry | undefined> {
    await this.#case.wait(() => this.#packets.some(fits), ms);
    const at = this.#packets.findIndex(fits);
    return at < 0 ? undefined : this.#packets.splice(at, 1)[0];
  }

  /** PSN of a response, from the tester's first. */
  at({ packet }: Entry): number | undefined {
    return packet && psnDiff(packet.bth.psn, this.rep?.startingPsn ?? 0);
  }

  /** PSN of a request of the device, from the first that REQ gave it. */
  requestAt({ packet }: Entry): number | undefined {
    return packet && psnDiff(packet.bth.psn, this.numbers.psn);
  }

  /** The connection is released, or there never was one. */
  released(): void {
    this.#isReleased = true;
  }

  async close(): Promise<void> {
    if (this.rep === undefined || this.#isReleased) return;
    this.#isReleased = true;
    this.dreq();
    await this.next('DREP', RELEASES);
  }
}
