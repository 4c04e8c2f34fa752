/**
 * The engine's UC, UD, SRQs and windows against the model's, packet by packet: what a peer might send and what it must not,
 * each given to both. Completions, answers, memory and state must be the same.
 */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  decodePacket,
  describePacket,
  EngineDevice,
  encodePacket,
  ModelDevice,
  type ModelPacket,
  type Random,
  type ResumableQp,
  type SimDevice,
  type SimService,
  type SimSrq,
  type SimWindow,
} from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { gidFromText, Opcode, type OpcodeName, opcodeInfo, psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 20);
const ARENA = 32_768;
/** Receives are from here on, WRITEs mostly before. */
const RECEIVE_AREA = 16_384;
const MTU = 256;
const QKEY = 0x0bad_cafe;
const PEER = { gid: gidFromText('10.0.0.2'), qpn: 0x77, rkey: 0, base: 0n, qkey: QKEY };

/** The known state of the one window. */
interface Binding {
  bound: boolean;
  zeroBased: boolean;
  writable: boolean;
  key: number;
}

/** One of the two under test, with its own idea of QPN, keys and addresses. */
interface Subject {
  device: SimDevice;
  qp: ResumableQp;
  srq: SimSrq | undefined;
  window: SimWindow;
  type: 1 | 2;
  binding: Binding;
  /** The request of a BIND_MW, until it completes. */
  next: Binding;
}

function subjects(seed: number, service: SimService, psn: number): [Subject, Subject] {
  const gid = gidFromText('10.0.0.1');
  const make = (device: SimDevice): Subject => {
    const srq = seed % 3 === 0 ? device.createSrq() : undefined;
    const qp = device.createQp({ service, psn: 0, qkey: QKEY, srq });
    const qpAccessFlags = seed % 7 === 0 ? 0 : CONNECTION_DEFAULTS.qpAccessFlags;
    qp.connect({ ...PEER, psn }, { ...CONNECTION_DEFAULTS, pathMtu: MTU, qpAccessFlags });
    const type = seed % 2 === 0 ? 1 : 2;
    const window = device.allocWindow(type);
    const binding = { bound: false, zeroBased: false, writable: false, key: window.rkey };
    return { device, qp, srq, window, type, binding, next: binding };
  };
  return [
    // As the model, it discards what comes early.
    make(new EngineDevice({ gid, arenaBytes: ARENA, seed, recovery: { keepEarly: 'off' } })),
    make(new ModelDevice({ gid, qpn: 0x11, arenaBytes: ARENA })),
  ];
}

/** Keys of test packets: 0 is the arena's, 1 none's, 2 the window's. */
function keyOf({ qp, binding }: Subject, key: number): number {
  return key === 2 ? binding.key : (qp.info.rkey ^ key) >>> 0;
}

function give(subject: Subject, packet: ModelPacket): ModelPacket[] {
  const { device, qp } = subject;
  const { base, qpn } = qp.info;
  const aim = <T extends { va: bigint; rkey: number }>(at: T | undefined) =>
    at && {
      ...at,
      va: BigInt.asUintN(64, (at.va >= ZERO_BASED ? -ZERO_BASED : base) + at.va),
      rkey: keyOf(subject, at.rkey),
    };
  const invalidateRkey =
    packet.invalidateRkey === undefined ? undefined : keyOf(subject, packet.invalidateRkey);
  const bytes = encodePacket({ ...packet, destQpn: qpn, reth: aim(packet.reth), invalidateRkey });
  const way = { source: PEER.gid, destination: device.gid, trafficClass: 0, sourcePort: 0xc000 };
  device.receive([{ bytes, ...way, corrupt: false }], 1);
  return transmit(device);
}

/** Addresses from here on are meant from zero. */
const ZERO_BASED = 1n << 48n;

const transmit = (device: SimDevice): ModelPacket[] =>
  device.transmit(1).map(({ bytes }) => {
    const decoded = decodePacket(bytes);
    if (!decoded.ok) throw new Error(decoded.reason);
    return decoded.packet;
  });

const bytesOf = (random: Random, length: number) => Uint8Array.from({ length }, () => random.next());

const blank = (name: string, psn: number): ModelPacket => ({
  opcode: Opcode[name as OpcodeName],
  destQpn: 0,
  psn,
  ackReq: false,
  solicited: false,
  pkey: 0xffff,
  payload: new Uint8Array(0),
});

/** The generator's view of the stream, to make packets that are mostly right. */
class Stream {
  readonly #service: 'RC' | 'UC' | 'UD';
  readonly #random: Random;
  #psn: number;
  #message: { kind: 'SEND' | 'RDMA_WRITE'; left: number } | undefined;
  readonly #history: ModelPacket[] = [];
  /** The peer's view of the window. */
  window: Omit<Binding, 'key'> & { type: 1 | 2 } = {
    bound: false,
    zeroBased: false,
    writable: false,
    type: 1,
  };

  constructor(service: 'RC' | 'UC' | 'UD', psn: number, random: Random) {
    this.#service = service;
    this.#psn = psn;
    this.#random = random;
  }

  draw(): ModelPacket {
    const random = this.#random;
    const repeats = this.#history.length > 0 && random.chance(0.1);
    const packet = repeats ? random.pick(this.#history.slice(-6)) : this.#next();
    this.#history.push(packet);
    // A fault ends a reliable connection.
    const spoils = random.chance(this.#service === 'RC' ? 0.02 : 0.12);
    return spoils ? this.#spoil(structuredClone(packet)) : packet;
  }

  #next(): ModelPacket {
    const random = this.#random;
    const psn = this.#psn;
    // Lost on the way: the receiver never sees it. RC would ask again; here it has to come in order.
    this.#psn = psnAdd(psn, this.#service !== 'RC' && random.chance(0.06) ? 2 : 1);
    if (this.#service === 'UD') return this.#datagram(psn);
    const message = this.#message ?? {
      kind: random.pick(['SEND', 'SEND', 'RDMA_WRITE'] as const),
      left: random.pick([0, 1, 5, 255, 256, 257, 600]),
    };
    const first = this.#message === undefined;
    const last = message.left <= MTU;
    const { kind } = message;
    const place = first ? (last ? 'ONLY' : 'FIRST') : last ? 'LAST' : 'MIDDLE';
    const inv =
      this.#service === 'RC' &&
      kind === 'SEND' &&
      last &&
      random.chance(this.window.bound && this.window.type === 2 ? 0.3 : 0.01);
    const imm = !inv && last && random.chance(0.3);
    const packet = blank(
      `${this.#service}_${kind}_${place}${imm ? '_WITH_IMMEDIATE' : inv ? '_WITH_INVALIDATE' : ''}`,
      psn,
    );
    packet.payload = bytesOf(random, Math.min(message.left, MTU));
    packet.ackReq = this.#service === 'RC' && last;
    packet.solicited = random.chance(0.1);
    if (imm) packet.immediate = random.next();
    if (inv) packet.invalidateRkey = random.chance(0.8) ? 2 : random.pick([0, 1]);
    if (first && kind === 'RDMA_WRITE') packet.reth = this.#range(message.left);
    message.left -= packet.payload.length;
    this.#message = last ? undefined : message;
    return packet;
  }

  /** Mostly in the region, often through the window, which is on 4096 … 6143. */
  #range(length: number): NonNullable<ModelPacket['reth']> {
    const random = this.#random;
    const { bound, zeroBased, writable } = this.window;
    const usable = bound && writable;
    if (random.chance(usable ? 0.4 : 0.97)) return { va: BigInt(random.between(0, 15_000)), rkey: 0, length };
    const va = BigInt(random.chance(0.95) ? random.between(4096, 6144 - length) : 6145 - length);
    const fromZero = random.chance(0.98) ? zeroBased : !zeroBased;
    return { va: fromZero ? ZERO_BASED + va - 4096n : va, rkey: 2, length };
  }

  #datagram(psn: number): ModelPacket {
    const random = this.#random;
    const imm = random.chance(0.3);
    const packet = blank(`UD_SEND_ONLY${imm ? '_WITH_IMMEDIATE' : ''}`, psn);
    packet.payload = bytesOf(random, random.pick([0, 1, 5, 255, 256, 600]));
    packet.deth = { qkey: QKEY, srcQpn: random.pick([PEER.qpn, 5]) };
    if (imm) packet.immediate = random.next();
    return packet;
  }

  /** One thing about a packet made wrong, or just different. */
  #spoil(packet: ModelPacket): ModelPacket {
    const random = this.#random;
    switch (random.between(0, 6)) {
      case 0:
        packet.psn = psnAdd(packet.psn, random.between(-5, 5));
        break;
      case 1:
        return this.#otherOpcode(packet);
      case 2:
        packet.payload = bytesOf(random, random.pick([0, 1, 255, 256, 257, 300]));
        break;
      case 3:
        if (packet.reth) packet.reth.rkey = 1;
        if (packet.deth) packet.deth.qkey = random.pick([0, QKEY + 1, 0x8000_0000]);
        break;
      case 4:
        if (packet.reth) packet.reth.va = random.pick([-1n, BigInt(ARENA), BigInt(ARENA) - 1n]);
        if (packet.deth) packet.payload = bytesOf(random, random.pick([4096, 4097]));
        break;
      case 5:
        if (packet.reth) packet.reth.length = random.pick([0, 1, 256, 10_000, 0x8000_0001]);
        break;
      case 6:
        packet.pkey = random.pick([0x7fff, 0x1234]);
    }
    return packet;
  }

  #otherOpcode(packet: ModelPacket): ModelPacket {
    const services = ['UC', 'UC', 'UC', 'UD', 'RC'] as const;
    const service = this.#service === 'RC' ? 'RC' : this.#random.pick(services);
    const names = Object.keys(Opcode).filter((key) => {
      return key.startsWith(`${service}_`) && /_(SEND|RDMA_WRITE)_/.test(key);
    });
    const opcode = Opcode[this.#random.pick(names) as OpcodeName];
    const { offsets } = opcodeInfo(opcode)!;
    return {
      ...packet,
      opcode,
      reth: offsets.reth < 0 ? undefined : { va: 8n, rkey: 0, length: packet.payload.length },
      deth: offsets.deth < 0 ? undefined : { qkey: QKEY, srcQpn: PEER.qpn },
      immediate: offsets.immDt < 0 ? undefined : 7,
      invalidateRkey: offsets.ieth < 0 ? undefined : 2,
    };
  }
}

/** The owner's side of the window: binds it or ends it, mostly as it may. */
function changeWindow(random: Random, pair: [Subject, Subject], wrId: number): string {
  const careless = random.chance(0.1);
  const [{ binding, type }] = pair;
  const ends = careless ? random.chance(0.3) : binding.bound && type === 2;
  const rights = random.pick([Access.REMOTE_WRITE, Access.REMOTE_WRITE | Access.REMOTE_READ, 0]);
  const nothing = type === 1 && random.chance(0.2);
  const [offset, length] = careless
    ? random.pick([
        [4096, 0],
        [ARENA - 10, 11],
      ] as const)
    : ([4096, nothing ? 0 : 2048] as const);
  // The meaning of rights where nothing is bound is left open; type 1 has no windows from zero.
  const zero = length > 0 && random.chance(type === 2 ? 0.3 : 0.02) ? Access.ZERO_BASED : 0;
  // Always another key than before: whether the same one may come again is left open.
  const step = random.between(1, 255);
  const foreign = random.chance(0.02);
  for (const subject of pair) {
    const { qp, window } = subject;
    const { key } = subject.binding;
    const rkey = ((key & ~0xff) | ((key + step) & 0xff)) >>> 0;
    if (ends) {
      qp.postSend({ wrId, opcode: 'LOCAL_INV', offset: 0, length: 0, invalidateRkey: key });
      continue;
    }
    const bind = {
      window,
      rkey: foreign ? (rkey ^ 0x100) >>> 0 : rkey,
      offset,
      length,
      access: rights | zero,
    };
    qp.postSend({ wrId, opcode: 'BIND_MW', offset: 0, length: 0, bind });
    const writable = (rights & Access.REMOTE_WRITE) > 0;
    subject.next = { bound: length > 0, zeroBased: zero > 0, writable, key: rkey };
  }
  return ends ? 'LOCAL_INV' : `bind ${offset} ${length} access ${rights | zero} key + ${step} ${foreign}`;
}

const plain = (packet: ModelPacket) => `${describePacket(packet)} ${packet.payload.join(' ')}`;

/** The same completions and state. */
function compare(pair: [Subject, Subject], what: string): void {
  const [sends, wantedSends] = pair.map(({ qp }) => qp.pollSend());
  expect(sends, what).toEqual(wantedSends);
  for (const subject of pair) {
    if (sends.some(({ opcode }) => opcode === 'BIND_MW')) subject.binding = subject.next;
    if (sends.some(({ opcode }) => opcode === 'LOCAL_INV')) subject.binding.bound = false;
  }
  const [got, wanted] = pair.map(({ qp, binding }) =>
    qp.pollReceive().map(({ solicited: _, ...completion }) => {
      // Keys are each one's own.
      if (completion.invalidatedRkey !== undefined) {
        expect(completion.invalidatedRkey, what).toBe(binding.key);
        completion.invalidatedRkey = -1;
        binding.bound = false;
      }
      return completion;
    }),
  );
  expect(pair[0].qp.state, what).toBe(pair[1].qp.state);
  expect(got, what).toEqual(wanted);
}

/** Events of a kind so far, on each side. */
class Events {
  readonly #counts = [0, 0];

  compare(pair: [Subject, Subject], what: string): void {
    const [got, wanted] = pair.map(({ device }) => device.pollEvents());
    const limits = (events: string[]) => events.filter((event) => event === 'SRQ_LIMIT_REACHED').length;
    this.#counts[0] += limits(got);
    this.#counts[1] += limits(wanted);
    expect(this.#counts[0], what).toBe(this.#counts[1]);
    const others = (events: string[]) => events.filter((event) => event !== 'SRQ_LIMIT_REACHED');
    expect(others(got), what).toEqual(others(wanted));
  }
}

const TIMEOUT = 20_000 + SEEDS * 50;

test.each(['UC', 'UD', 'RC'] as const)('%s: the same for any packets', { timeout: TIMEOUT }, (service) => {
  let packets = 0;
  let errors = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = createRandom(seed);
    const psn = random.chance(0.3) ? 0xfffff0 : random.between(0, 0xffffff);
    const pair = subjects(seed, service, psn);
    const stream = new Stream(service, psn, random);
    const events = new Events();
    let receives = 0;
    for (let i = 0; i < 60; i++) {
      while (receives < i / 2) {
        const length = service === 'UD' ? random.pick([700, 340, 40, 45]) : random.pick([1024, 600, 300]);
        const slot = { wrId: receives, offset: RECEIVE_AREA + (receives % 8) * 1024, length };
        const receive = { ...slot, broken: random.chance(0.005) };
        for (const { qp, srq } of pair) (srq ?? qp).postReceive(receive);
        if (random.chance(0.05)) for (const { srq } of pair) srq?.setLimit(1);
        receives++;
      }
      if (service !== 'UD' && random.chance(0.15)) {
        const what = `seed ${seed}, before packet ${i}: ${changeWindow(random, pair, 1000 + i)}`;
        const [got, wanted] = pair.map(({ device }) => transmit(device).map(plain));
        expect(got, what).toEqual(wanted);
        compare(pair, what);
      }
      stream.window = { ...pair[0].binding, type: pair[0].type };
      const packet = stream.draw();
      const what = `seed ${seed}, packet ${i}: ${describePacket(packet)}`;
      const [got, wanted] = pair.map((subject) => give(subject, packet).map(plain));
      expect(got, what).toEqual(wanted);
      packets++;
      if (pair[0].qp.state !== 'RTS') errors++;
      compare(pair, what);
      events.compare(pair, what);
      if (pair[0].qp.state === 'ERR') break;
      if (pair[0].qp.state === 'SQE') for (const { qp } of pair) qp.resume();
    }
    // A receive that failed, or that a message had only begun, may hold anything.
    const memories = pair.map(({ device }) => device.arena.subarray(0, RECEIVE_AREA));
    const differs = memories[0].findIndex((byte, at) => byte !== memories[1][at]);
    expect(differs, `seed ${seed}: first byte of memory that differs`).toBe(-1);
  }
  // The streams are bad enough for errors, and good enough to go on for a while.
  expect(errors).toBeGreaterThan(SEEDS / 40);
  expect(packets).toBeGreaterThan(SEEDS * 20);
});
