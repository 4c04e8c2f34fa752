/**
 * A peer that has connections of its own to a device and means it no good. It knows everything: PSNs, keys, addresses. It
 * may end its own connections and write where it was let in; nothing else.
 */
import {
  CONNECTION_DEFAULTS,
  DEFAULT_PKEY,
  type Domain,
  decodePacket,
  type EngineEndpoint,
  encodePacket,
  type ModelOpcode,
  type ModelPacket,
  type Random,
  type ResumableQp,
  type SimPacket,
  type SimService,
  type SimSrq,
  type SimWindow,
} from '@node-roce/sim';
import {
  gidEquals,
  gidFromText,
  Opcode,
  type OpcodeInfo,
  opcodeInfo,
  psnAdd,
  Transport,
} from '@node-roce/wire';
import { Bth } from './bth-offsets.ts';
import { filled } from './marker.ts';
import { mutatedCopy } from './mutations.ts';

const INSIDER = gidFromText('10.0.0.77');
const QKEY = 0x0bad_cafe;
/** The insider's QPNs, one for each connection. */
const FIRST_QPN = 0x70;
const MTU = CONNECTION_DEFAULTS.pathMtu;
const ALL = Array.from({ length: 256 }, (_, opcode) => opcodeInfo(opcode)).filter(
  (info) => info !== undefined,
);
const ANSWERS = ALL.filter(({ transport, isRequest }) => transport === Transport.RC && !isRequest);
const SENDS: readonly ModelOpcode[] = ['SEND', 'SEND_WITH_IMM'];
const RDMA: readonly ModelOpcode[] = [...SENDS, 'RDMA_WRITE', 'RDMA_WRITE_WITH_IMM'];
const RELIABLE: readonly ModelOpcode[] = [...RDMA, 'RDMA_READ', 'ATOMIC_FETCH_AND_ADD', 'ATOMIC_CMP_AND_SWP'];

/** One of the insider's connections, seen from the device. */
interface Connection {
  service: Exclude<SimService, 'XRC_INI' | 'XRC_TGT'>;
  qp: ResumableQp;
  shared: boolean;
  /** Posted and not completed. */
  sends: number;
  receives: number;
  /** The insider has begun a message of this kind here. */
  begun: 'SEND' | 'WRITE' | undefined;
  peerQpn: number;
  /** Requests that the insider has heard and not answered. */
  heard: ModelPacket[];
}

export interface InsiderOptions {
  device: EngineEndpoint;
  domain: Domain;
  /** Bytes of the domain's arena. */
  bytes: number;
  /** Keys of regions and windows that are not for the insider: of other protection domains. */
  forbidden: readonly { rkey: number; base: bigint }[];
  random: Random;
}

/** A peer with connections of its own that answers requests wrongly. */
export class Insider {
  readonly connections: Connection[];
  /** Connections that the insider's packets have ended so far. */
  ended = 0;
  readonly #options: InsiderOptions;
  readonly #srqs: [SimSrq, SimSrq];
  readonly #sharedReceives = [0, 0];
  readonly #windows: { window: SimWindow; key: number }[];
  readonly #previous: SimPacket[] = [];

  constructor(options: InsiderOptions) {
    this.#options = options;
    const { device, domain } = options;
    this.#srqs = [device.createSrq(domain), device.createSrq(domain)];
    this.#windows = ([1, 2] as const).map((type) => {
      const window = device.allocWindow(type, domain);
      return { window, key: window.rkey };
    });
    const services = [
      ['RC', false],
      ['RC', false],
      ['RC', true],
      ['UC', false],
      ['UC', true],
      ['UD', false],
      ['UD', true],
      ['GSI', false],
    ] as const;
    this.connections = services.map(([service, shared], i) => {
      const srq = shared ? { srq: this.#srqs[service === 'RC' ? 0 : 1] } : {};
      const qp = device.createQp(
        { service, psn: options.random.next() & 0xff_ffff, qkey: QKEY, ...srq },
        domain,
      );
      const connection: Connection = {
        service,
        qp,
        shared,
        sends: 0,
        receives: 0,
        begun: undefined,
        peerQpn: FIRST_QPN + i,
        heard: [],
      };
      this.#connect(connection);
      return connection;
    });
  }

  #connect({ qp, peerQpn: qpn }: Connection): void {
    const { random } = this.#options;
    const peer = { gid: INSIDER, qpn, psn: random.next() & 0xff_ffff, rkey: 1, base: 0n, qkey: QKEY };
    qp.connect(peer, CONNECTION_DEFAULTS);
  }

  /** The program of the device: posts, polls, and takes up again what has ended. */
  upkeep(): void {
    const { device } = this.#options;
    device.pollEvents();
    for (const connection of this.connections) {
      const { qp } = connection;
      connection.sends -= qp.pollSend().length;
      const received = qp.pollReceive().length;
      if (connection.shared) this.#sharedReceives[connection.service === 'RC' ? 0 : 1] -= received;
      else connection.receives -= received;
      if (qp.state === 'ERR' || qp.state === 'SQE') {
        this.ended++;
        device.adapter.modifyQp(qp.info.qpn, { qpState: 'RESET' });
        connection.sends = connection.receives = 0;
        connection.begun = undefined;
        connection.heard = [];
        this.#connect(connection);
      }
      this.#post(connection);
    }
    for (const [i, srq] of this.#srqs.entries()) {
      while (this.#sharedReceives[i] < 16) {
        srq.postReceive(this.#receive());
        this.#sharedReceives[i]++;
      }
    }
  }

  #receive() {
    const { random, bytes } = this.#options;
    const length = random.pick([0, 40, 300, 4096, 6000]);
    return { wrId: 0, offset: random.between(0, bytes - length), length };
  }

  #post(connection: Connection): void {
    const { random, bytes } = this.#options;
    const { qp, service, shared } = connection;
    while (!shared && connection.receives < 16) {
      qp.postReceive(this.#receive());
      connection.receives++;
    }
    while (connection.sends < 8) {
      const opcode = random.pick(service === 'RC' ? RELIABLE : service === 'UC' ? RDMA : SENDS);
      const length = opcode.startsWith('ATOMIC') ? 8 : random.between(0, 4096);
      const offset = random.between(0, bytes - length);
      qp.postSend({ wrId: 0, opcode, offset, length, remoteAddress: 0n, to: undefined });
      connection.sends++;
    }
    if (service !== 'RC' || !random.chance(0.2)) return;
    const place = random.pick(this.#windows);
    place.key = ((place.key & ~0xff) | ((place.key + 1) & 0xff)) >>> 0;
    const length = random.between(0, 4096);
    const bind = {
      window: place.window,
      rkey: place.key,
      offset: random.between(0, bytes - length),
      length,
      access: 0xe,
    };
    qp.postSend({ wrId: 0, opcode: 'BIND_MW', offset: 0, length: 0, bind });
    connection.sends++;
  }

  /** Takes the packets that the device sent; the insider gets those addressed to it. */
  hear(packets: readonly SimPacket[]): void {
    for (const { bytes, destination } of packets) {
      if (!gidEquals(destination, INSIDER)) continue;
      const decoded = decodePacket(bytes);
      if (!decoded.ok || decoded.packet.opcode >= Transport.UC) continue;
      const { heard } = this.connections[decoded.packet.destQpn - FIRST_QPN];
      if (heard.length < 64 && opcodeInfo(decoded.packet.opcode)!.isRequest) heard.push(decoded.packet);
    }
  }

  /** The next packet: of its own making, or an earlier one of them changed. */
  next(): SimPacket {
    const { random } = this.#options;
    if (this.#previous.length === 64 && random.chance(0.3)) {
      const changed = mutatedCopy(random.pick(this.#previous), random, true);
      if (changed) return changed;
    }
    const packet = this.#make();
    if (this.#previous.length === 64) this.#previous[random.between(0, 63)] = packet;
    else this.#previous.push(packet);
    return packet;
  }

  #make(): SimPacket {
    const { device, random } = this.#options;
    const connection = random.pick(this.connections);
    const { qp, service } = connection;
    const transport = service === 'GSI' ? Transport.UD : Transport[service];
    const answered = random.chance(0.3) ? connection.heard.shift() : undefined;
    const info = answered ? this.#answerTo(answered) : this.#draw(connection, transport);
    const { rqPsn = 0, sqPsn = 0 } = device.adapter.queryQp(qp.info.qpn).attr;
    const exact = random.chance(0.9);
    const psn = answered
      ? answered.psn
      : info.isRequest
        ? psnAdd(rqPsn, exact ? 0 : random.between(-200, 200))
        : psnAdd(sqPsn, exact ? -random.between(1, 20) : random.between(-200, 200));
    const fields: ModelPacket = {
      opcode: info.opcode,
      destQpn: qp.info.qpn,
      psn,
      ackReq: random.chance(0.5),
      solicited: random.chance(0.1),
      pkey: DEFAULT_PKEY,
      payload: filled(new Uint8Array(this.#payload(info, answered))),
    };
    const bytes =
      info.transport === transport ? encodePacket(this.#headers(fields, info)) : anything(info, random);
    if (random.chance(0.01)) bytes[Bth.FLAGS] ^= random.next() & 0x30; // another pad
    return {
      bytes,
      source: INSIDER,
      destination: device.gid,
      trafficClass: random.next() & 0xff,
      sourcePort: 0xc000,
      corrupt: false,
    };
  }

  /** Mostly packets that may follow those sent before, so that many of them are taken. */
  #draw(connection: Connection, transport: number): OpcodeInfo {
    const { random } = this.#options;
    if (random.chance(0.02)) return random.pick(ALL);
    const rows = ALL.filter((row) => row.transport === transport);
    if (random.chance(0.03)) return random.pick(rows);
    const { begun } = connection;
    const fits = rows.filter((row) => {
      if (!row.isRequest) return random.chance(0.3);
      return begun === undefined
        ? row.first
        : !row.first && row.isSend === (begun === 'SEND') && row.hasPayload;
    });
    const info = random.pick(fits.length > 0 ? fits : rows);
    if (info.isRequest) connection.begun = info.last ? undefined : info.isSend ? 'SEND' : 'WRITE';
    return info;
  }

  /** The right kind of answer, mostly. */
  #answerTo({ opcode, reth }: ModelPacket): OpcodeInfo {
    const { random } = this.#options;
    const { isReadRequest, isAtomic } = opcodeInfo(opcode)!;
    if (random.chance(0.1)) return random.pick(ANSWERS);
    if (isAtomic) return opcodeInfo(Opcode.RC_ATOMIC_ACKNOWLEDGE)!;
    if (!isReadRequest || random.chance(0.3)) return opcodeInfo(Opcode.RC_ACKNOWLEDGE)!;
    const whole = reth!.length <= MTU;
    return opcodeInfo(whole ? Opcode.RC_RDMA_READ_RESPONSE_ONLY : Opcode.RC_RDMA_READ_RESPONSE_FIRST)!;
  }

  #payload(info: OpcodeInfo, answered?: ModelPacket): number {
    const { random } = this.#options;
    if (!info.hasPayload) return random.chance(0.02) ? 8 : 0;
    if (answered?.reth && random.chance(0.9)) return Math.min(MTU, answered.reth.length);
    if (random.chance(0.04)) return random.pick([0, 1, 3, MTU - 1, MTU + 1, MTU + 4, 4096, 8000]);
    return info.last ? random.between(0, MTU) : MTU;
  }

  #headers(packet: ModelPacket, { offsets }: OpcodeInfo): ModelPacket {
    const { random } = this.#options;
    if (offsets.deth >= 0) {
      packet.deth = {
        qkey: random.chance(0.9) ? QKEY : random.pick([0x8001_0000, random.next()]),
        srcQpn: FIRST_QPN,
      };
    }
    if (offsets.reth >= 0) {
      const length = this.#length(packet);
      packet.reth = { ...this.#place(length), length };
    }
    if (offsets.atomicEth >= 0) {
      const { va, rkey } = this.#place(8);
      const aligned = random.chance(0.9) ? va & ~7n : va;
      packet.atomicEth = {
        va: aligned,
        rkey,
        swapAdd: BigInt(random.next()),
        compare: BigInt(random.next()),
      };
    }
    if (offsets.aeth >= 0) {
      const odd = random.pick([random.between(0x20, 0x3f), random.between(0x60, 0x65), random.next() & 0xff]);
      const syndrome = random.chance(0.8) ? random.between(0, 0x1f) : odd;
      packet.aeth = { syndrome, msn: random.next() & 0xff_ffff };
    }
    if (offsets.atomicAckEth >= 0) packet.original = BigInt(random.next());
    if (offsets.immDt >= 0) packet.immediate = random.next();
    if (offsets.ieth >= 0)
      packet.invalidateRkey = random.pick([...this.#windows.map(({ key }) => key), random.next()]);
    return packet;
  }

  /** An address and a key for so many bytes: mostly in the arena, at its edges, by a window; now and then of somebody else's. */
  #place(length: number): { va: bigint; rkey: number } {
    const { random, domain, bytes, forbidden } = this.#options;
    const { base, rkey } = domain.arena;
    if (random.chance(0.7)) return { va: base + BigInt(8 * random.between(0, bytes / 16)), rkey };
    if (random.chance(0.2)) {
      const other = random.pick(forbidden);
      return { va: other.base, rkey: other.rkey };
    }
    const keys = [rkey, rkey, rkey, rkey, ...this.#windows.map(({ key }) => key), random.next(), rkey ^ 1];
    const at = random.pick([
      0,
      bytes - length,
      bytes - length,
      bytes - length,
      random.between(0, Math.max(0, bytes - length)),
      random.between(-9, 9),
      bytes,
    ]);
    const va = random.chance(0.95) ? base + BigInt(at) : random.pick([0n, 0xffff_ffff_ffff_fff0n, 1n << 63n]);
    return { va: BigInt.asUintN(64, va), rkey: random.pick(keys) >>> 0 };
  }

  #length({ payload, opcode }: ModelPacket): number {
    const { random, bytes } = this.#options;
    if (opcode === Opcode.RC_RDMA_READ_REQUEST) {
      return random.pick([
        0,
        1,
        MTU,
        random.between(0, 8000),
        random.between(0, 8000),
        bytes,
        2 ** 31,
        0xffff_ffff,
      ]);
    }
    const info = opcodeInfo(opcode)!;
    if (random.chance(0.05)) return random.pick([0, payload.length + 1, 2 ** 31, 2 ** 31 + 1, 0xffff_ffff]);
    return info.last ? payload.length : payload.length + random.between(1, 4 * MTU);
  }
}

/** A packet of a service that the model has no fields for. */
function anything(info: OpcodeInfo, random: Random): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(info.headerLength + 4 * random.between(0, 64));
  for (let i = 0; i < bytes.length; i++) bytes[i] = random.next();
  bytes[Bth.OPCODE] = info.opcode;
  return bytes;
}
