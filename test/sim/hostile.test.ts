/**
 * A requester whose peer's answers come with forged ones among them: never an exception, and never a completion
 * that is wrong. Forgeries that can not be distinguished from the truth are left out: an ACK of packets that have not arrived, or an answer of
 * the right PSN, kind and length with other data. All others are given to it; it may end the connection, or go on.
 *
 *   ROCE_SIM_SEEDS=5000 npx vitest run test/sim/hostile
 */
import {
  ARENA_BYTES,
  createRandom,
  decodePacket,
  type Endpoint,
  type EndpointOptions,
  EngineEndpoint,
  encodePacket,
  MixedWorkload,
  ModelEndpoint,
  type ModelPacket,
  Pair,
  type Random,
  type SimPacket,
} from '@node-roce/sim';
import { Opcode, opcodeInfo, psnAdd, psnDiff } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';

const SEEDS = Number(process.env.ROCE_SIM_SEEDS ?? 8);
const COUNT = 60;
/** The ends that lies may bring a connection to. */
const ENDINGS = new Set([
  'BAD_RESP_ERR',
  'REM_INV_REQ_ERR',
  'REM_ACCESS_ERR',
  'REM_OP_ERR',
  'REM_INV_RD_REQ_ERR',
  'RETRY_EXC_ERR',
  'RNR_RETRY_EXC_ERR',
]);
const ACK = Opcode.RC_ACKNOWLEDGE;
const READ_RESPONSES = [
  Opcode.RC_RDMA_READ_RESPONSE_FIRST,
  Opcode.RC_RDMA_READ_RESPONSE_MIDDLE,
  Opcode.RC_RDMA_READ_RESPONSE_LAST,
  Opcode.RC_RDMA_READ_RESPONSE_ONLY,
];

/** The forger's knowledge: the truth about both sides. */
interface Truth {
  /** The first PSN that B has not executed. */
  executed(): number;
  /** One past the last PSN that A has sent. */
  sent(): number;
}

/** A forged response, made from a real one. */
function forge(random: Random, real: ModelPacket, truth: Truth, harsh: boolean): ModelPacket | undefined {
  const fake = structuredClone(real);
  const info = opcodeInfo(real.opcode)!;
  const old = () => psnAdd(truth.executed(), -random.between(1, 40));
  const future = () => psnAdd(truth.sent(), random.between(0, 1000));
  const blank = { payload: new Uint8Array(0), original: undefined };
  switch (random.between(0, harsh ? 11 : 3)) {
    case 0: // An ACK of what was executed, in the past or again: of a READ or atomic it shows only that the answer is missing.
      return {
        ...fake,
        ...blank,
        opcode: ACK,
        psn: old(),
        aeth: { syndrome: 0x1f, msn: random.next() & 0xff_ffff },
      };
    case 1: // Anything for what was never sent.
      return { ...fake, psn: future() };
    case 2: // Credits of a madman, on an ACK of the past.
      return {
        ...fake,
        ...blank,
        opcode: ACK,
        psn: old(),
        aeth: { syndrome: random.between(0, 30), msn: 0 },
      };
    case 3: // The same once more.
      return fake;
    case 4: // A NAK, of a code that exists or not.
      return {
        ...fake,
        ...blank,
        opcode: ACK,
        psn: old(),
        aeth: { syndrome: 0x60 + random.between(0, 31), msn: 0 },
      };
    case 5: // An RNR NAK of anything.
      return {
        ...fake,
        ...blank,
        opcode: ACK,
        psn: old(),
        aeth: { syndrome: 0x20 + random.between(0, 31), msn: 0 },
      };
    case 6:
    case 10:
    case 11: // Of another kind: a READ's answer to an atomic, an ACK instead of an answer, …
      if (info.isReadResponse || real.opcode === Opcode.RC_ATOMIC_ACKNOWLEDGE) {
        const toAtomic = info.isReadResponse && random.chance(0.5);
        if (!toAtomic && !info.isReadResponse) {
          return {
            ...fake,
            ...blank,
            opcode: random.pick(READ_RESPONSES),
            aeth: { syndrome: 0x1f, msn: 0 },
            payload: new Uint8Array(8),
          };
        }
        return toAtomic
          ? {
              ...fake,
              ...blank,
              opcode: Opcode.RC_ATOMIC_ACKNOWLEDGE,
              aeth: { syndrome: 0x1f, msn: 0 },
              original: 7n,
            }
          : { ...fake, ...blank, opcode: ACK, aeth: { syndrome: 0x1f, msn: 0 } };
      }
      return {
        ...fake,
        opcode: random.pick(READ_RESPONSES),
        aeth: { syndrome: 0x1f, msn: 0 },
        payload: new Uint8Array(64),
      };
    case 7: // Too long or too short.
      if (!info.isReadResponse) return undefined;
      fake.payload = new Uint8Array(Math.max(0, real.payload.length + random.pick([-4, 4, 100, 5000])));
      return fake.payload.length === real.payload.length ? undefined : fake;
    case 8: // In another place of its message.
      if (!info.isReadResponse) return undefined;
      fake.opcode = random.pick(READ_RESPONSES);
      fake.aeth ??= { syndrome: 0x1f, msn: 0 };
      return fake;
    default: // With a NAK in the answer.
      if (!info.isReadResponse || fake.aeth === undefined) return undefined;
      return { ...fake, aeth: { syndrome: random.pick([0x20, 0x60, 0x62, 0x7f]), msn: 0 } };
  }
}

/** An endpoint that receives lies, and counts those it believed. */
class Deceived {
  readonly endpoint: Endpoint;
  /** One past the last request that completed with success. */
  succeeded = 0;
  lies = 0;
  truth: Truth | undefined;
  #sent = -1;

  constructor(endpoint: Endpoint, seed: number, harsh: boolean) {
    const random = createRandom(seed);
    this.endpoint = endpoint;
    const { receive, transmit, pollSend } = endpoint;
    endpoint.transmit = (now) => {
      const packets = transmit.call(endpoint, now);
      for (const { bytes } of packets) this.#note(bytes);
      return packets;
    };
    endpoint.receive = (packets, now) =>
      receive.call(
        endpoint,
        packets.flatMap((p) => this.#deceive(p, random, harsh)),
        now,
      );
    endpoint.pollSend = () => {
      const completions = pollSend.call(endpoint);
      for (const { wrId, status } of completions) if (status === 'SUCCESS') this.succeeded = wrId + 1;
      return completions;
    };
  }

  /** One past the last PSN sent; −1 before the first. */
  get sent(): number {
    return this.#sent;
  }

  #note(bytes: Uint8Array): void {
    const decoded = decodePacket(bytes);
    if (!decoded.ok || !opcodeInfo(decoded.packet.opcode)!.isRequest) return;
    // A READ takes as many PSNs as it has responses; at the smallest path MTU here, to be sure.
    const { psn, reth, opcode } = decoded.packet;
    const psns = opcode === Opcode.RC_RDMA_READ_REQUEST ? Math.max(1, Math.ceil(reth!.length / 256)) : 1;
    const end = psnAdd(psn, psns);
    if (this.#sent < 0 || psnDiff(end, this.#sent) > 0) this.#sent = end;
  }

  #deceive(packet: SimPacket, random: Random, harsh: boolean): SimPacket[] {
    const decoded = decodePacket(packet.bytes);
    if (!decoded.ok || opcodeInfo(decoded.packet.opcode)!.isRequest || this.#sent < 0) return [packet];
    if (!random.chance(harsh ? 0.05 : 0.5)) return [packet];
    const lie = forge(random, decoded.packet, this.truth!, harsh);
    if (lie === undefined) return [packet];
    this.lies++;
    const forged = { ...packet, bytes: encodePacket(lie) };
    return random.chance(0.5) ? [forged, packet] : [packet, forged];
  }
}

describe.each(['engine', 'model'] as const)('requester: %s', (kind) => {
  test.each([
    ['gentle lies, all requests complete as they should', false],
    ['harsh lies, nothing completes that was not done', true],
  ])('%s', { timeout: 300_000 + SEEDS * 200 }, (_name, harsh) => {
    let lies = 0;
    let ended = 0;
    for (let seed = 1; seed <= SEEDS; seed++) {
      let deceived!: Deceived;
      const make = (options: EndpointOptions) => {
        const endpoint =
          kind === 'engine' ? new EngineEndpoint(options) : new ModelEndpoint({ ...options, qpn: 0x11 });
        deceived = new Deceived(endpoint, seed, harsh);
        return endpoint;
      };
      const wire = seed % 2 === 0 ? {} : { loss: 0.02, reorder: 0.02, duplicate: 0.02 };
      const pair = new Pair({
        a: make,
        b: 'model',
        seed,
        arenaBytes: ARENA_BYTES,
        timeout: 8,
        pathMtu: 256,
        aToB: wire,
        bToA: wire,
      });
      const { responder } = (pair.b as ModelEndpoint).qp;
      deceived.truth = { executed: () => responder.ePsn, sent: () => deceived.sent };
      const workload = new MixedWorkload(pair.a, pair.b, COUNT, createRandom(seed));
      const what = `seed ${seed}`;
      const finished = pair.run(() => workload.step(), 60e6);
      expect(finished, what).toBe(true);
      if (workload.failure !== undefined) {
        ended++;
        expect(ENDINGS, what).toContain(workload.failure);
        if (!harsh) throw new Error(`${what}: ended with ${workload.failure}`);
      }
      expect(deceived.succeeded, what).toBeLessThanOrEqual(responder.msn);
      lies += deceived.lies;
    }
    // Enough of it to mean something; harsh lies end many connections, and not all.
    expect(lies).toBeGreaterThan(SEEDS);
    if (harsh) {
      expect(ended).toBeGreaterThan(SEEDS / 4);
      expect(ended).toBeLessThan(SEEDS);
    }
  });
});
