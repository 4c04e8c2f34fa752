/**
 * The engine's responder against the model's, packet by packet: requests as a peer might send them and
 * as it must not, each given to both. Replies, receive completions, memory and state must be the same.
 */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  decodePacket,
  describePacket,
  EngineEndpoint,
  encodePacket,
  ModelEndpoint,
  type ModelPacket,
  type Random,
  type Responder,
  type SimPacket,
} from '@node-roce/sim';
import { gidFromText, Opcode, psnAdd, psnDiff } from '@node-roce/wire';
import { expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 80);
const ARENA = 32_768;
/** Receives are from here on, WRITEs and atomics mostly before. */
const RECEIVE_AREA = 16_384;
const MTU = 256;
const PEER_QPN = 0x77;

const RESERVED = [0x15, 0x18, 0x1b, 0x1e, 0x1f].map((opcode) => ['', opcode] as const);
const REQUESTS = [
  ...Object.entries(Opcode).filter(([key, opcode]) => opcode < 0x20 && !/RESPONSE|ACKNOWLEDGE/.test(key)),
  ...RESERVED,
];

/** One of the two under test, with its own idea of QPN, key and address. */
interface Subject {
  endpoint: EngineEndpoint | ModelEndpoint;
  give(packet: ModelPacket): ModelPacket[];
}

/** Now and then a queue pair that allows less, counts its receives, or has agreed on no READs. */
function subjects(seed: number, psn: number): [Subject, Subject] {
  const credits = seed % 4 === 0;
  const connection = {
    ...CONNECTION_DEFAULTS,
    pathMtu: MTU,
    credits,
    qpAccessFlags:
      seed % 5 === 0
        ? CONNECTION_DEFAULTS.qpAccessFlags & ~(2 << (seed % 3))
        : CONNECTION_DEFAULTS.qpAccessFlags,
    maxDestRdAtomic: seed % 11 === 0 ? 0 : 16,
  };
  const gid = gidFromText('10.0.0.1');
  const peer = { gid: gidFromText('10.0.0.2'), qpn: PEER_QPN, psn, rkey: 0, base: 0n };
  const make = (endpoint: EngineEndpoint | ModelEndpoint): Subject => {
    endpoint.connect(peer, connection);
    return { endpoint, give: (packet) => give(endpoint, packet, peer.gid) };
  };
  const options = { gid, psn: 0, arenaBytes: ARENA };
  return [
    make(new EngineEndpoint({ ...options, seed, credits })),
    make(new ModelEndpoint({ ...options, qpn: 0x11 })),
  ];
}

/** Addresses of a test packet are relative to the arena, its keys relative to the right one. */
function give(
  endpoint: EngineEndpoint | ModelEndpoint,
  packet: ModelPacket,
  source: Uint8Array,
): ModelPacket[] {
  const { qpn, rkey, base } = endpoint.info;
  const aim = <T extends { va: bigint; rkey: number }>(at: T | undefined) =>
    at && { ...at, va: BigInt.asUintN(64, base + at.va), rkey: (rkey ^ at.rkey) >>> 0 };
  const bytes = encodePacket({
    ...packet,
    destQpn: qpn,
    reth: aim(packet.reth),
    atomicEth: aim(packet.atomicEth),
  });
  const sim: SimPacket = {
    bytes,
    source,
    destination: endpoint.gid,
    trafficClass: 0,
    sourcePort: 0xc000,
    corrupt: false,
  };
  endpoint.receive([sim], 1);
  return endpoint.transmit(1).map((reply) => {
    const decoded = decodePacket(reply.bytes);
    if (!decoded.ok) throw new Error(decoded.reason);
    return decoded.packet;
  });
}

/** The generator's view of the stream, to make packets that are mostly right. */
interface Stream {
  psn: number;
  /** Bytes that the message in progress still has to send; its kind. */
  message: { kind: 'SEND' | 'RDMA_WRITE'; left: number } | undefined;
  history: ModelPacket[];
}

function draw(random: Random, stream: Stream): ModelPacket {
  const repeats = stream.history.length > 0 && random.chance(0.15);
  const packet = repeats ? random.pick(stream.history.slice(-12)) : next(random, stream);
  return random.chance(repeats ? 0.2 : 0.06) ? spoil(random, packet) : packet;
}

const blank = (opcode: number, psn: number): ModelPacket => ({
  opcode,
  destQpn: 0,
  psn,
  ackReq: false,
  solicited: false,
  pkey: 0xffff,
  payload: new Uint8Array(0),
});

const bytesOf = (random: Random, length: number) => Uint8Array.from({ length }, () => random.next());

/** The next packet of a good stream. */
function next(random: Random, stream: Stream): ModelPacket {
  const { psn } = stream;
  if (stream.message !== undefined) {
    const { kind, left } = stream.message;
    const last = left <= MTU;
    const imm = last && random.chance(0.3) ? '_WITH_IMMEDIATE' : '';
    const name = `RC_${kind}_${last ? 'LAST' : 'MIDDLE'}${imm}` as keyof typeof Opcode;
    const packet = blank(Opcode[name], psn);
    packet.payload = bytesOf(random, Math.min(left, MTU));
    packet.ackReq = last || random.chance(0.1);
    if (imm) packet.immediate = random.next();
    return packet;
  }
  const operation = random.pick([
    'SEND',
    'SEND',
    'RDMA_WRITE',
    'RDMA_WRITE',
    'READ',
    'ATOMIC',
    'PLACE',
  ] as const);
  const va = BigInt(random.between(0, 1000)) * 8n;
  if (operation === 'READ') {
    const packet = blank(Opcode.RC_RDMA_READ_REQUEST, psn);
    return { ...packet, ackReq: true, reth: { va, rkey: 0, length: random.pick([0, 1, 256, 257, 900]) } };
  }
  if (operation === 'ATOMIC') {
    const packet = blank(random.chance(0.5) ? Opcode.RC_FETCH_ADD : Opcode.RC_COMPARE_SWAP, psn);
    const atomicEth = { va, rkey: 0, swapAdd: BigInt(random.next()), compare: BigInt(random.between(0, 3)) };
    return { ...packet, ackReq: true, atomicEth };
  }
  if (operation === 'PLACE') return place(random, psn, va);
  const length = random.pick([0, 1, 5, 255, 256, 257, 700]);
  const only = length <= MTU;
  const imm = only && random.chance(0.3) ? '_WITH_IMMEDIATE' : '';
  const name = `RC_${operation}_${only ? 'ONLY' : 'FIRST'}${imm}` as keyof typeof Opcode;
  const packet = blank(Opcode[name], psn);
  packet.payload = bytesOf(random, Math.min(length, MTU));
  packet.ackReq = only;
  packet.solicited = random.chance(0.1);
  if (imm) packet.immediate = random.next();
  if (operation === 'RDMA_WRITE') packet.reth = { va, rkey: 0, length };
  return packet;
}

/** FLUSH or ATOMIC_WRITE. */
function place(random: Random, psn: number, va: bigint): ModelPacket {
  if (random.chance(0.5)) {
    const packet = blank(Opcode.RC_ATOMIC_WRITE, psn);
    return { ...packet, ackReq: true, reth: { va, rkey: 0, length: 8 }, payload: bytesOf(random, 8) };
  }
  const feth = { placement: random.pick([0, 1, 1, 1]), selectivity: random.pick([0, 0, 1]) };
  const length = feth.selectivity === 1 ? random.next() : random.pick([0, 1, 4096, ARENA - Number(va)]);
  return { ...blank(Opcode.RC_FLUSH, psn), ackReq: true, feth, reth: { va, rkey: 0, length } };
}

/** One thing about a packet made wrong, or just different. */
function spoil(random: Random, packet: ModelPacket): ModelPacket {
  const spoiled = structuredClone(packet);
  switch (random.between(0, 8)) {
    case 0:
      spoiled.psn = psnAdd(packet.psn, random.between(-5, 5));
      break;
    case 1: {
      const [, opcode] = random.pick(REQUESTS);
      return completeHeaders({ ...spoiled, opcode });
    }
    case 2:
      spoiled.payload = bytesOf(random, random.pick([0, 1, 255, 256, 257, 300]));
      break;
    case 3:
      if (spoiled.reth) spoiled.reth.rkey = 1;
      if (spoiled.atomicEth) spoiled.atomicEth.rkey = 1;
      break;
    case 4:
      if (spoiled.reth) spoiled.reth.va = random.pick([-1n, BigInt(ARENA), BigInt(ARENA) - 1n]);
      if (spoiled.atomicEth) spoiled.atomicEth.va = random.pick([4n, -8n, BigInt(ARENA)]);
      break;
    case 5:
      if (spoiled.reth) spoiled.reth.length = random.pick([0, 1, 256, 10_000, 0x8000_0001]);
      break;
    case 6:
      spoiled.ackReq = !spoiled.ackReq;
      break;
    case 7:
      spoiled.pkey = random.pick([0x7fff, 0x1234]);
      break;
    case 8:
      if (spoiled.feth)
        spoiled.feth = { placement: random.pick([0, 2, 3]), selectivity: random.pick([0, 1]) };
  }
  return spoiled;
}

/** The headers that another opcode asks for. */
function completeHeaders(packet: ModelPacket): ModelPacket {
  const key = REQUESTS.find(([, opcode]) => opcode === packet.opcode)![0];
  const has = (pattern: RegExp) => pattern.test(key);
  return {
    ...packet,
    payload: has(/READ_REQUEST|SWAP|FETCH|FLUSH/) ? new Uint8Array(0) : packet.payload,
    feth: has(/FLUSH/) ? { placement: 1, selectivity: 0 } : undefined,
    reth: has(/WRITE_(FIRST|ONLY)|READ_REQUEST|FLUSH|ATOMIC_WRITE/)
      ? { va: 8n, rkey: 0, length: packet.payload.length }
      : undefined,
    atomicEth: has(/SWAP|FETCH/) ? { va: 8n, rkey: 0, swapAdd: 1n, compare: 0n } : undefined,
    immediate: has(/IMMEDIATE/) ? 7 : undefined,
    // The arena's own key, which is a region's: nothing that a peer may take away.
    invalidateRkey: has(/INVALIDATE/) ? 7 : undefined,
  };
}

/** Moves the stream on by the model's reaction to a packet. */
function follow(stream: Stream, packet: ModelPacket, model: ModelEndpoint): void {
  const { responder } = model.qp;
  stream.history.push(packet);
  stream.psn = responder.ePsn;
  const { inProgress } = responder;
  if (inProgress === undefined) {
    stream.message = undefined;
  } else if (inProgress.kind === 'SEND') {
    stream.message = {
      kind: 'SEND',
      left: stream.message?.left ? stream.message.left - packet.payload.length : 444,
    };
    if (stream.message.left <= 0) stream.message.left = 1;
  } else {
    stream.message = { kind: 'RDMA_WRITE', left: inProgress.announced - inProgress.received };
  }
}

const isAnsweredItself = (r: Responder, psn: number) =>
  r.saved.some(({ firstPsn, lastPsn }) => psnDiff(psn, firstPsn) >= 0 && psnDiff(psn, lastPsn) <= 0);

/**
 * The same replies, except where a responder has a choice. The ACK of a repeated SEND or WRITE may stop at any SEND
 * or WRITE from it on; and a SEND or WRITE with a PSN that no SEND or WRITE had is no repetition of anything: an
 * ACK or silence.
 */
function expectSame(
  got: ModelPacket[],
  wanted: ModelPacket[],
  packet: ModelPacket,
  r: Responder,
  what: string,
): void {
  const isRepeat = psnDiff(packet.psn, r.ePsn) < 0;
  const isAck = ({ opcode }: ModelPacket) => opcode === Opcode.RC_ACKNOWLEDGE;
  if (isRepeat && got.some(isAck)) {
    expect(got.length, what).toBe(1);
    const [{ psn }] = got;
    const known = psnDiff(r.ackPsn, packet.psn) >= 0 && !isAnsweredItself(r, packet.psn);
    if (!known) return;
    expect(psnDiff(psn, packet.psn), what).toBeGreaterThanOrEqual(0);
    expect(psnDiff(psn, r.ackPsn), what).toBeLessThanOrEqual(0);
    expect(isAnsweredItself(r, psn), what).toBe(false);
  }
  // A COMPARE SWAP with the PSN of a FETCH ADD, or the other way round: the saved answer or silence.
  if (isRepeat && packet.atomicEth !== undefined && wanted.length === 0) return;
  const text = (reply: ModelPacket) => {
    const settled = structuredClone(reply);
    if (isRepeat && isAck(reply)) settled.psn = r.ackPsn;
    return `${describePacket(settled)} ${reply.original ?? ''} ${reply.payload.join(' ')}`;
  };
  expect(got.map(text), what).toEqual(wanted.map(text));
}

test('the same replies, completions, memory and state for any requests', () => {
  let faults = 0;
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = createRandom(seed);
    const psn = random.chance(0.3) ? 0xfffff0 : random.between(0, 0xffffff);
    const [engine, model] = subjects(seed, psn);
    const stream: Stream = { psn, message: undefined, history: [] };
    const { responder } = (model.endpoint as ModelEndpoint).qp;
    let receives = 0;
    for (let i = 0; i < 60; i++) {
      const packet = draw(random, stream);
      while (receives < i / 3) {
        const receive = {
          wrId: receives,
          offset: RECEIVE_AREA + (receives % 8) * 1024,
          length: random.pick([1024, 600]),
        };
        for (const { endpoint } of [engine, model]) endpoint.postReceive(receive);
        receives++;
      }
      const what = `seed ${seed}, packet ${i}: ${describePacket(packet)}`;
      const before = structuredClone(responder);
      expectSame(engine.give(packet), model.give(packet), packet, before, what);
      const [got, wanted] = [engine, model].map(({ endpoint }) =>
        endpoint.pollReceive().map(({ solicited: _, ...completion }) => completion),
      );
      expect(got, what).toEqual(wanted);
      expect(engine.endpoint.state, what).toBe(model.endpoint.state);
      if (engine.endpoint.state === 'ERR') {
        faults++;
        break;
      }
      follow(stream, packet, model.endpoint as ModelEndpoint);
    }
    // A receive that failed may hold anything.
    const settled = engine.endpoint.state === 'ERR' ? RECEIVE_AREA : ARENA;
    const memories = [engine, model].map(({ endpoint }) => endpoint.arena.subarray(0, settled));
    const differs = memories[0].findIndex((byte, at) => byte !== memories[1][at]);
    expect(differs, `seed ${seed}: first byte of memory that differs`).toBe(-1);
  }
  // The streams are bad enough to end connections, and good enough not to end them all.
  expect(faults).toBeGreaterThan(SEEDS / 10);
  expect(faults).toBeLessThan(SEEDS);
});
