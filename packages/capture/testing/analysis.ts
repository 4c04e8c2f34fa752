/** Values of an analysis for tests of drawings: complete, and plain unless given. */
import { Opcode, opcodeInfo } from '@node-roce/wire';
import type { Analysis, Connection, Finding, LadderPacket, Message, Verdict } from '../src/flow/analysis.ts';
import { overviewOf } from '../src/flow/overview.ts';
import { newCounts } from '../src/flow/track/direction.ts';
import { newMessageCounts } from '../src/flow/track/messages.ts';

/** A SEND from `a`; the name follows the opcode. */
export function ladderPacket(given: Partial<LadderPacket> = {}): LadderPacket {
  const opcode = given.opcode ?? Opcode.RC_SEND_ONLY;
  return {
    frame: 1,
    part: 0,
    time: 0,
    from: 'a',
    opcode,
    opcodeName: opcodeInfo(opcode)!.name,
    psn: 100,
    destQp: 0x12,
    payloadLength: 0,
    ackReq: false,
    aeth: undefined,
    reth: undefined,
    immediate: undefined,
    retransmission: undefined,
    grade: undefined,
    evidence: undefined,
    repeatedFrame: false,
    icrc: 'ok',
    ecnMarked: false,
    message: undefined,
    bytes: '',
    ...given,
  };
}

/** An answer from `b` with that syndrome. */
export const answer = (syndrome: number, text: string, given: Partial<LadderPacket> = {}): LadderPacket =>
  ladderPacket({
    from: 'b',
    opcode: Opcode.RC_ACKNOWLEDGE,
    aeth: { syndrome, text, msn: 1, credits: undefined },
    ...given,
  });

export function message(given: Partial<Message> = {}): Message {
  return {
    id: 1,
    connection: 1,
    from: 'a',
    operation: 'SEND',
    bytes: 1000,
    firstPsn: 100,
    lastPsn: 100,
    packets: 1,
    retransmitted: 0,
    firstFrame: 1,
    lastFrame: 1,
    start: 0,
    end: 0,
    latency: 10_000,
    ackRoundTrip: 9_000,
    outcome: 'completed',
    failure: undefined,
    ...given,
  };
}

export function connection(given: Partial<Connection> = {}): Connection {
  return {
    id: 1,
    transport: 'RC',
    a: { address: '10.0.0.1', qpn: 0x11 },
    b: { address: '10.0.0.2', qpn: 0x12 },
    pairing: 'certain',
    pairingReason: 'no other pair fits',
    pathMtu: 1024,
    paths: { aToB: undefined, bToA: undefined },
    start: 0,
    end: 1e9,
    firstFrame: 1,
    lastFrame: 2,
    aToB: newCounts(),
    bToA: newCounts(),
    messagesFromA: newMessageCounts(),
    messagesFromB: newMessageCounts(),
    ackRoundTrip: undefined,
    readRoundTrip: undefined,
    cnpDelay: undefined,
    rnrWait: undefined,
    completion: undefined,
    latencyClasses: [],
    recoveries: [],
    stalls: [],
    plot: [],
    throughput: { start: 0, span: 1e8, aToB: [], bToA: [], againAToB: [], againBToA: [] },
    latency: [],
    messages: [],
    ladder: [],
    verdict: verdict(),
    ended: undefined,
    ...given,
  };
}

const verdict = (given: Partial<Verdict> = {}): Verdict => ({
  kind: 'healthy',
  certainty: 'certain',
  severity: undefined,
  text: 'Nothing stands out: 1 message, all complete, nothing retransmitted.',
  culprit: undefined,
  connection: 1,
  chain: [],
  also: [],
  hint: undefined,
  ...given,
});

export function finding(given: Partial<Finding> = {}): Finding {
  return {
    kind: 'retransmissions',
    severity: 'error',
    connection: 1,
    from: 'a',
    subject: '#1 10.0.0.1 QP 0x11 → 10.0.0.2 QP 0x12',
    statement: '2 packets retransmitted',
    text: '#1 10.0.0.1 QP 0x11 → 10.0.0.2 QP 0x12: 2 packets retransmitted',
    hint: 'Look at the drop counters.',
    start: 0,
    end: 0,
    frames: [1],
    frameCount: 1,
    ...given,
  };
}

export function analysis(given: Partial<Analysis> = {}): Analysis {
  return {
    verdict: verdict(),
    summary: {
      file: 'trace.pcap',
      format: 'pcap',
      linkTypes: ['ETHERNET'],
      startTime: '2026-01-01T00:00:00.000000000Z',
      duration: 1e9,
      frames: 2,
      rocePackets: 2,
      otherFrames: 0,
      pauseFrames: 0,
      icmpErrors: 0,
      sampledPackets: 0,
      otherKinds: {},
      otherPorts: [],
      damaged: {},
      cutFrames: 0,
      cutHeaders: 0,
      superPackets: 0,
      neededSnapLength: 96,
      icrc: { ok: 2, bad: 0, none: 0 },
      droppedByCapture: undefined,
      damage: undefined,
    },
    overview: overviewOf(given.connections ?? []),
    findings: [],
    connections: [],
    exchanges: [],
    pauses: [],
    unconnected: 0,
    ...given,
  };
}
