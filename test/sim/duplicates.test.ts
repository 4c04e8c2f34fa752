/**
 * Duplicates of as many READs and atomics as were agreed on (max_dest_rd_atomic), all in one batch, as a peer sends them that
 * lost every answer: each is answered as the first time, by the engine as by the model (IBTA vol 1 §9.7.5.1.5).
 */
import {
  CONNECTION_DEFAULTS,
  createRandom,
  decodePacket,
  EngineEndpoint,
  encodePacket,
  ModelEndpoint,
  type ModelPacket,
  type Random,
} from '@node-roce/sim';
import { gidFromText, Opcode, psnAdd } from '@node-roce/wire';
import { expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 40);
const FIRST = Number(process.env.ROCE_SIM_FIRST ?? 1);
const MTU = 256;
const ARENA = 16_384;
const PEER = gidFromText('10.0.0.2');

type Responder = EngineEndpoint | ModelEndpoint;

/** Gives all requests in one batch; the answers, each as PSN, opcode and content. */
function give(endpoint: Responder, requests: ModelPacket[]): string[] {
  const { qpn, rkey, base } = endpoint.info;
  const aim = <T extends { va: bigint }>(at: T | undefined) => at && { ...at, va: base + at.va, rkey };
  const packets = requests.map((request) => ({
    bytes: encodePacket({
      ...request,
      destQpn: qpn,
      reth: aim(request.reth),
      atomicEth: aim(request.atomicEth),
    }),
    source: PEER,
    destination: endpoint.gid,
    trafficClass: 0,
    sourcePort: 0xc000,
    corrupt: false,
  }));
  endpoint.receive(packets, 1);
  return endpoint.transmit(1).map(({ bytes }) => {
    const decoded = decodePacket(bytes);
    if (!decoded.ok) throw new Error(decoded.reason);
    const { psn, opcode, payload, original } = decoded.packet;
    return `${psn} ${opcode} ${original ?? payload.join(' ')}`;
  });
}

/** A READ of one to four responses, an atomic, a FLUSH or an ATOMIC_WRITE, at a PSN; and the PSN after it. */
function draw(random: Random, psn: number): [ModelPacket, number] {
  const common = {
    destQpn: 0,
    psn,
    ackReq: true,
    solicited: false,
    pkey: 0xffff,
    payload: new Uint8Array(0),
  };
  if (random.chance(0.5)) {
    const opcode = random.pick([Opcode.RC_FETCH_ADD, Opcode.RC_COMPARE_SWAP]);
    const [swapAdd, compare] = [BigInt(random.next()), BigInt(random.between(0, 1))];
    const va = 8n * BigInt(random.between(0, 3));
    return [{ ...common, opcode, atomicEth: { va, rkey: 0, swapAdd, compare } }, psnAdd(psn, 1)];
  }
  if (random.chance(0.4)) {
    const va = 8n * BigInt(random.between(0, 3));
    const write = {
      opcode: Opcode.RC_ATOMIC_WRITE,
      payload: Uint8Array.from({ length: 8 }, () => random.next()),
    };
    const flush = { opcode: Opcode.RC_FLUSH, feth: { placement: 1, selectivity: 0 } };
    const reth = { va, rkey: 0, length: 8 };
    return [
      { ...common, ...random.pick<Partial<ModelPacket> & { opcode: number }>([write, flush]), reth },
      psnAdd(psn, 1),
    ];
  }
  const length = random.between(1, 4 * MTU);
  const reth = { va: BigInt(random.between(1024, ARENA - length)), rkey: 0, length };
  return [{ ...common, opcode: Opcode.RC_RDMA_READ_REQUEST, reth }, psnAdd(psn, Math.ceil(length / MTU))];
}

test('answers as many duplicates at once as READs and atomics were agreed on', () => {
  let answered = 0;
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    const random = createRandom(seed);
    const resources = random.pick([1, 4, 9, 16, 32, 64, 128]);
    let psn = random.chance(0.3) ? 0xff_fff0 : random.between(0, 0xff_ffff);
    const options = { gid: gidFromText('10.0.0.1'), psn: 0, arenaBytes: ARENA };
    const subjects: Responder[] = [
      new EngineEndpoint({ ...options, seed }),
      new ModelEndpoint({ ...options, qpn: 0x11 }),
    ];
    for (const subject of subjects) {
      subject.arena.forEach((_, i, arena) => {
        arena[i] = i < 64 ? 0 : i * 7 + (i >> 8);
      });
      const peer = { gid: PEER, qpn: 0x77, psn, rkey: 0, base: 0n };
      subject.connect(peer, { ...CONNECTION_DEFAULTS, pathMtu: MTU, maxDestRdAtomic: resources });
    }
    for (let round = 0; round < 3; round++) {
      const requests: ModelPacket[] = [];
      while (requests.length < resources) {
        const [request, next] = draw(random, psn);
        requests.push(request);
        psn = next;
      }
      const [first, wanted] = subjects.map((subject) => give(subject, requests));
      expect(first, `seed ${seed}, ${resources} requests`).toEqual(wanted);
      const from = random.between(0, resources - 1);
      const again = subjects.map((subject) => give(subject, requests.slice(from)));
      expect(again[0], `seed ${seed}, ${resources - from} duplicates`).toEqual(again[1]);
      expect(again[1].length).toBeGreaterThanOrEqual(resources - from);
      answered += resources - from;
    }
  }
  console.log(`${answered} duplicates answered`);
  expect(answered).toBeGreaterThan(SEEDS);
});
