/**
 * A connection between the tester and the device, as a rule sees it. PSNs are relative: `n` counts from the first PSN of
 * the side that sends requests.
 *
 * - requests to the device: `send`, `write`, `read`, `sendOnly`, `fetchAdd`, `raw`
 * - answers to requests of the device: `acknowledge`, `reply`
 * - packets of the device: `next`, `all`, `collect`; with a judgement: `ack`, `nak`, `silence`, `alive`, `dead`
 * - the device's side, of `DeviceSide`: `post`, `receive`, `completions`, `peek`, `poke`, `state`
 */
import {
  AethKind,
  aethKind,
  encodeBth,
  encodeReth,
  type OpcodeName,
  type PacketInput,
  psnAdd,
  psnDiff,
} from '@node-roce/wire';
import type { ConnectionSpec, DeviceConnection } from './device.ts';
import { bytes, DeviceSide, type Playing } from './device-side.ts';
import type { Entry } from './line.ts';
import { NAK_CODES, nameOfPacket, relative, syndromeText } from './names.ts';

/** Fields of a packet that differ from the usual ones. */
export interface PacketOptions {
  ackReq?: boolean;
  payload?: Uint8Array;
  bth?: Partial<Omit<PacketInput['bth'], 'opcode'>>;
  /** Instead of the region's address and key, and the payload's length. */
  reth?: { va?: bigint; rkey?: number; length?: number };
  atomicEth?: { va?: bigint; rkey?: number; swapAdd?: bigint; compare?: bigint };
  extensions?: PacketInput['extensions'];
  ip?: PacketInput['ip'];
  udp?: PacketInput['udp'];
  pad?: Uint8Array;
  icrc?: number;
  trailer?: Uint8Array;
}

export interface ReplyOptions extends Omit<PacketOptions, 'reth' | 'atomicEth'> {
  /** An ACK with credits without limit, if absent; `null`: no AETH. */
  syndrome?: number | null;
  msn?: number;
}

/** A message that the device has sent, up to its last packet. */
interface SentMessage {
  lastPsn: number;
}

const isAcknowledge = (entry: Entry | undefined): boolean =>
  entry?.packet?.info.key === 'RC_ACKNOWLEDGE' || entry?.packet?.info.key === 'XRC_ACKNOWLEDGE';

/** A connection, as a rule sees it. */
export class Session extends DeviceSide {
  readonly spec: ConnectionSpec;
  readonly #case: Playing;
  readonly #connection: DeviceConnection;
  #inbox: Entry[] = [];
  /** First PSN of the device's requests that count: the warm-up takes one. */
  #devicePsn: number;
  /** Messages that the device has sent, for the MSN of answers. */
  readonly #messages: SentMessage[] = [];
  #highest: number | undefined;
  #closed = false;

  constructor(t: Playing, spec: ConnectionSpec, connection: DeviceConnection) {
    super(t, connection);
    this.#case = t;
    this.spec = spec;
    this.#connection = connection;
    this.#devicePsn = connection.psn;
  }

  /** For another connection that shares its receives. */
  get connection(): DeviceConnection {
    return this.#connection;
  }

  get qpn(): number {
    return this.#connection.qpn;
  }

  get va(): bigint {
    return this.#connection.va;
  }

  get rkey(): number {
    return this.#connection.rkey;
  }

  /** Of an XRC target. */
  get srqns(): readonly [number, number] {
    return this.#connection.srqns ?? this.#case.skip('the device has no XRC domain');
  }

  /** First PSN of the device's requests. */
  get devicePsn(): number {
    return this.#devicePsn;
  }

  arrived(entry: Entry): void {
    const { packet } = entry;
    if (packet?.bth.destQp !== this.spec.qpn) return;
    this.#inbox.push(entry);
    if (packet.info.isRequest) this.#countMessage(packet);
  }

  #countMessage({ info, bth, extensions }: NonNullable<Entry['packet']>): void {
    if (this.#highest !== undefined && psnDiff(bth.psn, this.#highest) <= 0) return;
    const packets = info.isReadRequest
      ? Math.max(1, Math.ceil((extensions.reth?.length ?? 0) / this.spec.pathMtu))
      : 1;
    this.#highest = psnAdd(bth.psn, packets - 1);
    if (info.last) this.#messages.push({ lastPsn: this.#highest });
  }

  // Requests to the device.

  /** Sends a packet with the PSN `n` of the tester's requests. */
  send(opcode: OpcodeName, n: number, options: PacketOptions = {}): Entry {
    const { ackReq = false, reth, atomicEth, bth, extensions, payload, ...rest } = options;
    const { va, rkey } = this.#connection;
    const all: PacketInput['extensions'] = { ...extensions };
    if (reth) all.reth = { va, rkey, length: payload?.length ?? 0, ...reth };
    if (atomicEth) all.atomicEth = { va, rkey, swapAdd: 1n, compare: 0n, ...atomicEth };
    const psn = psnAdd(this.spec.psn, n);
    return this.#case.send({
      bth: { opcode, destQp: this.qpn, psn, ackReq, migReq: true, ...bth },
      extensions: all,
      payload,
      ...rest,
    });
  }

  /** A WRITE in one packet that asks for an ACK; without data 16 bytes, at `at` bytes in the region. */
  write(n: number, data: Uint8Array = bytes(16, n), at = 0, options: PacketOptions = {}): Entry {
    this.#case.use('write');
    const { reth, ...rest } = options;
    const range = { va: this.va + BigInt(at), ...reth };
    return this.send('RC_RDMA_WRITE_ONLY', n, { ackReq: true, payload: data, reth: range, ...rest });
  }

  /** A WRITE of 8 bytes with immediate data, in one packet. */
  writeImmediate(n: number, immediate: number): Entry {
    this.#case.use('write');
    const extensions = { immDt: immediate };
    const options = { ackReq: true, payload: bytes(8, n), reth: {}, extensions };
    return this.send('RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE', n, options);
  }

  /** The FIRST of a WRITE of `length` bytes. */
  writeFirst(n: number, data: Uint8Array, length: number, at = 0, options: PacketOptions = {}): Entry {
    this.#case.use('write');
    const reth = { va: this.va + BigInt(at), length };
    return this.send('RC_RDMA_WRITE_FIRST', n, { payload: data, reth, ...options });
  }

  /** A MIDDLE or LAST that asks for an ACK. */
  follow(opcode: OpcodeName, n: number, data?: Uint8Array): Entry {
    return this.send(opcode, n, { ackReq: true, payload: data });
  }

  /** A READ request. */
  read(n: number, length: number, at = 0, options: PacketOptions = {}): Entry {
    this.#case.use('read');
    const reth = { va: this.va + BigInt(at), length, ...options.reth };
    return this.send('RC_RDMA_READ_REQUEST', n, { ackReq: true, ...options, reth });
  }

  /** A SEND in one packet that asks for an ACK. */
  sendOnly(n: number, data: Uint8Array = bytes(8, n), options: PacketOptions = {}): Entry {
    return this.send('RC_SEND_ONLY', n, { ackReq: true, payload: data, ...options });
  }

  fetchAdd(n: number, add: bigint, at = 0): Entry {
    this.#case.use('atomic');
    return this.send('RC_FETCH_ADD', n, {
      ackReq: true,
      atomicEth: { va: this.va + BigInt(at), swapAdd: add },
    });
  }

  compareSwap(n: number, compare: bigint, swap: bigint): Entry {
    this.#case.use('atomic');
    return this.send('RC_COMPARE_SWAP', n, { ackReq: true, atomicEth: { compare, swapAdd: swap } });
  }

  /** A datagram to a UD queue pair. */
  datagram(
    n: number,
    data: Uint8Array,
    { qkey = this.spec.qkey, ...options }: PacketOptions & { qkey?: number } = {},
  ): Entry {
    const extensions = { deth: { qkey, srcQp: this.spec.qpn } };
    return this.send('UD_SEND_ONLY', n, { payload: data, extensions, ...options });
  }

  /** A BTH with any opcode, AckReq set, and any bytes behind it. */
  raw(opcode: number, n: number, ...parts: Uint8Array[]): Entry {
    return this.#case.datagram(this.rawBytes(opcode, n, ...parts));
  }

  rawBytes(opcode: number, n: number, ...parts: Uint8Array[]): Uint8Array {
    const body = new Uint8Array(12 + parts.reduce((sum, part) => sum + part.length, 0));
    encodeBth(body, 0, {
      opcode,
      solicited: false,
      migReq: true,
      pad: 0,
      tver: 0,
      pkey: 0xffff,
      fecn: false,
      becn: false,
      reserved6: 0,
      destQp: this.qpn,
      ackReq: true,
      reserved7: 0,
      psn: psnAdd(this.spec.psn, n),
    });
    let at = 12;
    for (const part of parts) {
      body.set(part, at);
      at += part.length;
    }
    return body;
  }

  /** The bytes of a RETH for `raw`. */
  rethBytes(length: number, va = this.va, rkey = this.rkey): Uint8Array {
    const b = new Uint8Array(16);
    encodeReth(b, 0, { va, rkey, length });
    return b;
  }

  // Answers to requests of the device.

  /** A response with the PSN `n` of the device's requests. */
  reply(opcode: OpcodeName, n: number, options: ReplyOptions = {}): Entry {
    const { syndrome = 0x1f, msn = this.#msnAt(n, syndrome), extensions, bth, ...rest } = options;
    const psn = psnAdd(this.#devicePsn, n);
    return this.#case.send({
      bth: { opcode, destQp: this.qpn, psn, migReq: true, ...bth },
      extensions: { ...(syndrome === null ? {} : { aeth: { syndrome, msn } }), ...extensions },
      ...rest,
    });
  }

  acknowledge(n: number, options: ReplyOptions = {}): Entry {
    return this.reply('RC_ACKNOWLEDGE', n, options);
  }

  /** Messages that are done if everything up to `n` is; without it where it is refused. */
  #msnAt(n: number, syndrome: number | null): number {
    const refused = syndrome !== null && aethKind(syndrome) !== AethKind.ACK;
    const psn = psnAdd(this.#devicePsn, refused ? n - 1 : n);
    return this.#messages.filter(({ lastPsn }) => psnDiff(lastPsn, psn) <= 0).length;
  }

  /** The responses of a READ of `data` from PSN `n` on, but those at `lost`. */
  respond(n: number, data: Uint8Array, lost: readonly number[] = []): void {
    const { pathMtu } = this.spec;
    const count = Math.max(1, Math.ceil(data.length / pathMtu));
    for (let i = 0; i < count; i++) {
      if (lost.includes(i)) continue;
      const place = count === 1 ? 'ONLY' : i === 0 ? 'FIRST' : i === count - 1 ? 'LAST' : 'MIDDLE';
      this.reply(`RC_RDMA_READ_RESPONSE_${place}`, n + i, {
        syndrome: place === 'MIDDLE' ? null : 0x1f,
        payload: data.slice(i * pathMtu, (i + 1) * pathMtu),
      });
    }
  }

  // Packets of the device.

  /** The next packet, waited for at most `ms`; undefined: silence. */
  async next(ms = this.#case.waits.patience): Promise<Entry | undefined> {
    await this.#case.wait(() => this.#inbox.length > 0, ms);
    return this.#inbox.shift();
  }

  /** All that comes in `ms`. */
  async all(ms = this.#case.waits.quiet): Promise<Entry[]> {
    await this.#case.pass(ms);
    return this.#inbox.splice(0);
  }

  /** So many packets, or all that come until the patience ends. */
  async collect(count: number, ms = this.#case.waits.patience): Promise<Entry[]> {
    await this.#case.wait(() => this.#inbox.length >= count, ms);
    return this.#inbox.splice(0, count);
  }

  /** All packets until one fits, or until the patience ends. */
  async allUntil(fits: (entry: Entry) => boolean, ms = this.#case.waits.patience): Promise<Entry[]> {
    await this.#case.wait(() => this.#inbox.some(fits), ms);
    return this.#inbox.splice(0);
  }

  /** So many requests of the device with different PSNs: some devices repeat the last one early. */
  async requests(count: number, ms = this.#case.waits.patience): Promise<Entry[]> {
    await this.#case.wait(() => this.fresh(this.#inbox).length >= count, ms);
    return this.fresh(this.#inbox.splice(0));
  }

  /** The device has to send its request `n` again. A device that repeats early may have repeated a later one meanwhile. */
  async retransmits(key: OpcodeName, n: number, of: string, ms: number): Promise<void> {
    const fits = (entry: Entry) => entry.packet?.info.key === key && this.requestAt(entry) === n;
    const came = await this.allUntil(fits, ms);
    this.#case.want(came.some(fits), `${of} again, got ${this.list(this.fresh(came))}`);
  }

  /** The first packet of each PSN. */
  fresh(entries: readonly Entry[]): Entry[] {
    const seen = new Set<number | undefined>();
    return entries.filter(({ packet }) => !seen.has(packet?.bth.psn) && seen.add(packet?.bth.psn));
  }

  /** PSN of a response, from the tester's first. */
  at(entry: Entry | undefined): number | undefined {
    return entry?.packet && psnDiff(entry.packet.bth.psn, this.spec.psn);
  }

  /** PSN of a request, from the device's first. */
  requestAt(entry: Entry | undefined): number | undefined {
    return entry?.packet && psnDiff(entry.packet.bth.psn, this.#devicePsn);
  }

  /** A packet in words: name, relative PSN, syndrome. */
  describe(entry: Entry | undefined): string {
    if (entry === undefined) return 'silence';
    const { packet } = entry;
    if (packet === undefined) return `no packet (${entry.reason})`;
    const n = packet.info.isRequest ? this.requestAt(entry) : this.at(entry);
    const { aeth } = packet.extensions;
    return `${nameOfPacket(packet)} ${relative(n ?? 0)}${aeth ? ` ${syndromeText(aeth.syndrome)}` : ''}`;
  }

  list(entries: readonly Entry[]): string {
    return entries.length === 0 ? 'silence' : entries.map((entry) => this.describe(entry)).join('; ');
  }

  /** The next packet has to be an ACK with PSN `n`. */
  async ack(n: number, of = 'request'): Promise<Entry | undefined> {
    const entry = await this.next();
    this.isAck(entry, n, of);
    return entry;
  }

  isAck(entry: Entry | undefined, n: number, of: string): boolean {
    const syndrome = entry?.packet?.extensions.aeth?.syndrome;
    const is =
      isAcknowledge(entry) &&
      syndrome !== undefined &&
      aethKind(syndrome) === AethKind.ACK &&
      this.at(entry) === n;
    return this.#case.want(is, `${of}: wanted ACK ${relative(n)}, got ${this.describe(entry)}`);
  }

  /** The next packet has to be a NAK of this kind with PSN `n`, or an RNR NAK with a timer code. */
  async nak(
    kind: keyof typeof NAK_CODES | { rnr: number },
    n: number,
    of = 'request',
  ): Promise<Entry | undefined> {
    const entry = await this.next();
    this.isNak(entry, kind, n, of);
    return entry;
  }

  isNak(
    entry: Entry | undefined,
    kind: keyof typeof NAK_CODES | { rnr: number },
    n: number,
    of: string,
  ): boolean {
    const wanted: number = typeof kind === 'string' ? NAK_CODES[kind] : 0x20 | kind.rnr;
    const packet = entry?.packet;
    const is = isAcknowledge(entry) && packet?.extensions.aeth?.syndrome === wanted && this.at(entry) === n;
    return this.#case.want(
      is,
      `${of}: wanted ${syndromeText(wanted)} ${relative(n)}, got ${this.describe(entry)}`,
    );
  }

  /** Nothing may come. */
  async silence(what: string, ms?: number): Promise<void> {
    const entries = await this.all(ms);
    this.#case.want(entries.length === 0, `${what}: wanted silence, got ${this.list(entries)}`);
  }

  /** A request of no bytes, which needs no key, of a kind that the queue pair allows. */
  #probe(n: number): 'write' | 'read' {
    const { access, uses } = this.spec;
    const rights = this.#case.device.offers.has('attributes') ? access : uses;
    const kind = rights.includes('write') || !rights.includes('read') ? 'write' : 'read';
    const reth = { va: 0n, rkey: 0, length: 0 };
    this.send(kind === 'write' ? 'RC_RDMA_WRITE_ONLY' : 'RC_RDMA_READ_REQUEST', n, { ackReq: true, reth });
    return kind;
  }

  /** The connection goes on: a request of no bytes with PSN `n` is answered. */
  async alive(n: number): Promise<boolean> {
    const kind = this.#probe(n);
    const entry = await this.next();
    if (kind === 'write') return this.isAck(entry, n, 'the connection goes on');
    const is = entry?.packet?.info.key === 'RC_RDMA_READ_RESPONSE_ONLY' && this.at(entry) === n;
    return this.#case.want(is, `the connection goes on: wanted a READ response, got ${this.describe(entry)}`);
  }

  /** The connection is over: nothing is answered, and the queue pair is in the error state. */
  async dead(n: number): Promise<void> {
    this.#probe(n);
    await this.silence('in the error state');
    if (!this.#case.device.offers.has('state')) return;
    // No need of the rule: without it, the silence is judged.
    const state = await this.#connection.state?.();
    this.#case.want(state === 'ERR', `state ${state}, wanted ERR`);
  }

  /**
   * A first message, acknowledged with credits without limit: devices that count credits begin with none. Afterwards
   * the device's next request has PSN 0.
   */
  async warm(): Promise<void> {
    await this.post('write', { length: 0 });
    await this.next();
    this.acknowledge(0);
    await this.completions();
    await this.all(3);
    this.#devicePsn = psnAdd(this.#devicePsn, 1);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#connection.close();
  }
}
