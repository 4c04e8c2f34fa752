/**
 * The model's responder against the real one: it gets the requests that the real one got, in order, and
 * what it answers is compared with what the real one answered.
 */
import {
  createResponder,
  type ModelCompletion,
  type ModelPacket,
  type ModelRegion,
  postReceive,
  type QuirkName,
  type Responder,
  respond,
} from '@node-roce/sim';
import { Access } from '@node-roce/transport';
import { opcodeInfo, psnDiff } from '@node-roce/wire';
import { inferPathMtu, inferRegions, presetMemory } from './inference.ts';
import { option, type Sidecar } from './sidecar.ts';
import { type Connection, type Side, samePacket, samePayload, show, type TracePacket } from './trace.ts';

export interface ResponderReplay {
  /** Differences that no quirk explains; empty is agreement. */
  differences: string[];
  quirks: Set<QuirkName>;
  /** Replies of the real responder that were compared. */
  compared: number;
  completions: ModelCompletion[];
  /** Receives in the order in which they completed, with their bytes. */
  received: Map<number, Uint8Array>;
  responder: Responder;
}

const ALL_ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC;

export function replayResponder(connection: Connection, side: Side, sidecar: Sidecar): ResponderReplay {
  const peer: Side = side === 'A' ? 'B' : 'A';
  const requests = connection.packets.filter((p) => p.from === peer && p.isRequest);
  const replies = connection.packets.filter((p) => p.from === side && !p.isRequest);
  const command = sidecar.command[side];
  const probeServer = sidecar.isProbe && side === 'B';
  const firstPsn = sidecar.psns[peer].get(connection.qpn[peer]) ?? requests[0].packet.psn;
  const regions = probeServer ? probeRegions(sidecar) : inferRegions(requests);
  const responder = createResponder(
    {
      qpn: connection.qpn[side],
      destQpn: connection.qpn[peer],
      pathMtu: inferPathMtu(connection),
      accessFlags: ALL_ACCESS,
      maxDestRdAtomic: Number(
        (sidecar.isProbe ? option(command, 'R') : undefined) ?? (probeServer ? 16 : 128),
      ),
      minRnrTimer: Number((sidecar.isProbe ? option(command, 'z') : undefined) ?? 12),
      flowControl: false,
    },
    { regions },
    firstPsn,
  );
  const received = new Map<number, Uint8Array>();
  const post = (wrId: number, bytes: number) => {
    const local = new Uint8Array(bytes);
    received.set(wrId, local);
    postReceive(responder, { wrId, local });
  };
  const receives = probeServer ? probeReceives(sidecar, replies) : inferredReceives(requests);
  for (let i = 0; i < receives.first; i++) post(1000 + i, receives.bytes);

  const completions: ModelCompletion[] = [];
  const compare = new Comparison(replies, sidecar.isLossy[side]);
  let posted = receives.first;
  for (const request of requests) {
    while (posted < receives.total && request.time >= receives.laterAt) post(1000 + posted++, receives.bytes);
    if (!probeServer) presetMemory(responder, request, replies);
    const response = respond(responder, request.packet);
    completions.push(...response.completions);
    compare.add(request, response.replies, responder);
  }
  return { ...compare.finish(), completions, received, responder };
}

/** The initial contents of rxprobe's server's region. */
export function probeRegion(sidecar: Sidecar): Uint8Array {
  const bytes = new Uint8Array(Number(option(sidecar.command.B, 'b') ?? 1 << 20));
  for (let i = 0; i < bytes.length; i++) bytes[i] = 0xa0 ^ i ^ (i >> 8);
  bytes.fill(0, 0, 64);
  return bytes;
}

/** rxprobe's server: that region, and a window over its first 64 KiB. */
function probeRegions(sidecar: Sidecar): ModelRegion[] {
  const { rkey, windowKey, address } = sidecar.probe.B!;
  const bytes = probeRegion(sidecar);
  const letters = option(sidecar.command.B, 'a') ?? 'lwra';
  const access =
    (letters.includes('w') ? Access.REMOTE_WRITE : 0) |
    (letters.includes('r') ? Access.REMOTE_READ : 0) |
    (letters.includes('a') ? Access.REMOTE_ATOMIC : 0);
  return [
    { rkey, base: address, bytes, access, invalidatable: false },
    {
      rkey: windowKey,
      base: address,
      bytes: bytes.subarray(0, 65536),
      access: Access.REMOTE_WRITE | Access.REMOTE_READ,
      invalidatable: true,
    },
  ];
}

interface Receives {
  first: number;
  total: number;
  bytes: number;
  /** µs of the capture at which the rest is posted. */
  laterAt: number;
}

/**
 * rxprobe prints when it posted more receives, on its own clock; its first receive completion and the
 * first ACK of the capture happened together, within the 2 ms in which it polls.
 */
function probeReceives(sidecar: Sidecar, replies: TracePacket[]): Receives {
  const first = Number(option(sidecar.command.B, 'n') ?? 16);
  const bytes = Number(option(sidecar.command.B, 'l') ?? 65536);
  const later = sidecar.laterReceives;
  if (later === undefined) return { first, total: first, bytes, laterAt: Number.POSITIVE_INFINITY };
  const clock = sidecar.completions.B[0].time * 1e3 - replies[0].time;
  return { first, total: later.total, bytes, laterAt: later.time * 1e3 - clock };
}

/** Other programs never run out of receives in these captures: no RNR NAK is in any. */
function inferredReceives(requests: TracePacket[]): Receives {
  const total = requests.filter(({ packet }) => opcodeInfo(packet.opcode)!.last).length;
  return { first: total, total, bytes: 1 << 17, laterAt: Number.POSITIVE_INFINITY };
}

/** Compares the model's replies with the real ones, in order. */
class Comparison {
  readonly #expected: { packet: ModelPacket; request: TracePacket }[] = [];
  readonly #extraAllowed: TracePacket[] = [];
  readonly #replies: TracePacket[];
  readonly #lossy: boolean;

  constructor(replies: TracePacket[], lossy: boolean) {
    this.#replies = replies;
    this.#lossy = lossy;
  }

  add(request: TracePacket, replies: ModelPacket[], responder: Responder): void {
    for (const packet of replies) this.#expected.push({ packet, request });
    // Where the model drops silently after an RNR NAK, rxe once more sends its last answer.
    const ahead = psnDiff(request.packet.psn, responder.ePsn) > 0;
    if (replies.length === 0 && ahead && responder.nakOutstanding) this.#extraAllowed.push(request);
  }

  finish(): Pick<ResponderReplay, 'differences' | 'quirks' | 'compared'> {
    const differences: string[] = [];
    const quirks = new Set<QuirkName>();
    let at = 0;
    for (const reply of this.#replies) {
      const found = this.#find(reply, at);
      if (found !== undefined) {
        if (!this.#lossy) {
          for (const missing of this.#expected.slice(at, found.index)) {
            differences.push(
              `the model also sends ${show(missing.packet)} (request ${missing.request.number})`,
            );
          }
        }
        if (found.quirk !== undefined) quirks.add(found.quirk);
        at = found.index + 1;
      } else if (this.#isSequenceNakAfterRnr(reply, at)) {
        quirks.add('sequenceNakAfterRnrNak');
      } else {
        const model = this.#expected[at];
        differences.push(
          `#${reply.number}: ${show(reply.packet)}; the model sends ${model ? show(model.packet) : 'nothing more'}`,
        );
      }
    }
    if (!this.#lossy) {
      for (const { packet, request } of this.#expected.slice(at)) {
        differences.push(`the model also sends ${show(packet)} (request #${request.number})`);
      }
    }
    return { differences, quirks, compared: this.#replies.length };
  }

  /** The model's reply that a real one is, from `at` on; only one that its request can have caused. */
  #find(reply: TracePacket, at: number): { index: number; quirk?: QuirkName } | undefined {
    const end = this.#lossy ? this.#expected.length : Math.min(at + 1, this.#expected.length);
    for (let index = at; index < end && this.#expected[index].request.time <= reply.time; index++) {
      const model = this.#expected[index].packet;
      if (samePacket(model, reply.packet)) return { index };
      const quirk = quirkOf(model, reply.packet);
      if (quirk !== undefined) return { index, quirk };
    }
    return undefined;
  }

  #isSequenceNakAfterRnr(reply: TracePacket, at: number): boolean {
    const last = this.#expected[at - 1]?.packet;
    const { aeth, psn } = reply.packet;
    return (
      last?.aeth !== undefined &&
      last.aeth.syndrome >> 5 === 1 &&
      aeth?.syndrome === 0x60 &&
      psn === last.psn &&
      aeth.msn === last.aeth.msn &&
      this.#extraAllowed.some(({ time }) => time <= reply.time)
    );
  }
}

/** The quirk that makes rxe send `real` where the model sends `model`. */
function quirkOf(model: ModelPacket, real: ModelPacket): QuirkName | undefined {
  if (model.psn !== real.psn) return undefined;
  const keys = `${opcodeInfo(model.opcode)!.key} ${opcodeInfo(real.opcode)!.key}`;
  if (
    (keys === 'RC_RDMA_READ_RESPONSE_FIRST RC_RDMA_READ_RESPONSE_MIDDLE' ||
      (keys === 'RC_RDMA_READ_RESPONSE_ONLY RC_RDMA_READ_RESPONSE_LAST' &&
        model.aeth?.msn === real.aeth?.msn)) &&
    samePayload(model, real)
  ) {
    return 'resumedReadIsMiddle';
  }
  if (model.aeth?.syndrome === 0x61 && real.aeth?.syndrome === 0x63 && model.aeth.msn === real.aeth.msn) {
    return 'shortReceiveIsOperationalError';
  }
  return undefined;
}
