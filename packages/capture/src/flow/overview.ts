/** The capture at a glance: what was sent, what was retransmitted and why, next to which host, and the worst path. */
import { hostOf } from '../read/addresses.ts';
import { counted, formatBytes, formatCount } from '../units.ts';
import type { Connection, EpisodeReason, Overview, Recovery, RetransmitCause } from './analysis.ts';
import { newCauses } from './record/recoveries.ts';

/** So many senders to one receiver are an incast, where that receiver's packets are retransmitted or marked. */
const MIN_INCAST = 3;

/** Hosts that the text names, of those next to which packets were lost. */
const MAX_NEAR = 4;

/** Reasons of recoveries for which nothing was lost or late on the way. */
const ARRIVED: ReadonlySet<EpisodeReason> = new Set(['spurious', 'stood-still', 'not-ready']);

interface Path {
  from: string;
  to: string;
  retransmitted: number;
  troubled: boolean;
}

export function overviewOf(connections: readonly Connection[]): Overview {
  const hosts = new Set<string>();
  const paths = new Map<string, Path>();
  const causes = newCauses();
  const sides: Record<Recovery['side'], number> = { requester: 0, responder: 0, unknown: 0 };
  const near = new Map<string, number>();
  const sums = { messages: 0, bytes: 0, retransmitted: 0, goBacks: 0, sequenceNaks: 0, rnrNaks: 0 };
  for (const { a, b, aToB, bToA, messagesFromA, messagesFromB, recoveries } of connections) {
    const [hostA, hostB] = [hostOf(a.address), hostOf(b.address)];
    hosts.add(hostA);
    hosts.add(hostB);
    sums.messages += messagesFromA.total + messagesFromB.total;
    for (const { from, side, reason } of recoveries) {
      if (ARRIVED.has(reason)) continue;
      sides[side]++;
      if (side === 'unknown') continue;
      const host = (side === 'requester') === (from === 'a') ? hostA : hostB;
      near.set(host, (near.get(host) ?? 0) + 1);
    }
    for (const [from, to, counts] of [
      [hostA, hostB, aToB],
      [hostB, hostA, bToA],
    ] as const) {
      sums.bytes += counts.bytes;
      sums.retransmitted += counts.retransmitted;
      sums.goBacks += counts.goBacks;
      sums.sequenceNaks += counts.naks['psn-sequence-error'] ?? 0;
      sums.rnrNaks += counts.rnrNaks;
      for (const [cause, grades] of Object.entries(counts.goBackCauses) as [
        RetransmitCause,
        Record<string, number>,
      ][])
        causes[cause] += Object.values(grades).reduce((sum, count) => sum + count, 0);
      if (counts.requests === 0) continue;
      const key = `${from} ${to}`;
      const path = paths.get(key) ?? { from, to, retransmitted: 0, troubled: false };
      path.retransmitted += counts.retransmitted;
      if (counts.retransmitted > 0 || counts.ecnMarked > 0) path.troubled = true;
      paths.set(key, path);
    }
  }
  const all = [...paths.values()];
  const [worst] = all
    .filter(({ retransmitted }) => retransmitted > 0)
    .sort((x, y) => y.retransmitted - x.retransmitted);
  return {
    hosts: hosts.size,
    connections: connections.length,
    ...sums,
    causes,
    sides,
    lostNear: [...near]
      .map(([host, count]) => ({ host, packets: count }))
      .sort((x, y) => y.packets - x.packets),
    worstPath: worst && { from: worst.from, to: worst.to, retransmitted: worst.retransmitted },
    incast: incastOf(all),
  };
}

/** The receiver with most senders, if it has trouble. */
function incastOf(paths: readonly Path[]): Overview['incast'] {
  const receivers = new Map<string, { senders: number; troubled: boolean }>();
  for (const { to, troubled } of paths) {
    const receiver = receivers.get(to) ?? { senders: 0, troubled: false };
    receiver.senders++;
    receiver.troubled ||= troubled;
    receivers.set(to, receiver);
  }
  const [most] = [...receivers]
    .filter(([, { senders, troubled }]) => troubled && senders >= MIN_INCAST)
    .sort((x, y) => y[1].senders - x[1].senders);
  return most && { receiver: most[0], senders: most[1].senders };
}

/** Of one go-back-N event, and of several. */
const CAUSE_NAMES: Readonly<Record<RetransmitCause, [one: string, many: string]>> = {
  timeout: ['ACK timeout', 'ACK timeouts'],
  'sequence-nak': ['sequence NAK', 'sequence NAKs'],
  'implied-nak': ['gap in responses', 'gaps in responses'],
  rnr: ['RNR wait', 'RNR waits'],
  probe: ['probe', 'probes'],
  unknown: ['unexplained', 'unexplained'],
};

/** `4 sequence NAKs`; where more of them came than made requesters go back, `4 sequence NAKs (7 came)`. */
function causeText(cause: RetransmitCause, { causes, sequenceNaks, rnrNaks }: Overview): string {
  const text = counted(causes[cause], ...CAUSE_NAMES[cause]);
  if (cause === 'sequence-nak' && sequenceNaks > causes[cause])
    return `${text} (${formatCount(sequenceNaks)} came)`;
  if (cause === 'rnr' && rnrNaks > causes[cause]) return `${text} (${formatCount(rnrNaks)} RNR NAKs came)`;
  return text;
}

/** The overview in sentences; only about events that happened. */
export function overviewText(overview: Overview): string[] {
  const { hosts, connections, messages, bytes } = overview;
  const { retransmitted, goBacks, causes, sides, lostNear, worstPath, incast } = overview;
  const lines = [
    `${counted(connections, 'connection')} of ${counted(hosts, 'host')}, ${counted(messages, 'message')}, ${formatBytes(bytes)} of payload`,
  ];
  if (retransmitted > 0) {
    const named = (Object.keys(CAUSE_NAMES) as RetransmitCause[]).filter((cause) => causes[cause] > 0);
    const why = named.map((cause) => causeText(cause, overview));
    const recoveries = why.length > 0 ? `: ${why.join(', ')}` : '';
    lines.push(
      `${counted(retransmitted, 'packet')} retransmitted in ${counted(goBacks, 'recovery', 'recoveries')} (go-back-N)${recoveries}`,
    );
  }
  if (lostNear.length > 0) {
    const parts = lostNear
      .slice(0, MAX_NEAR)
      .map(({ host, packets }) => `${formatCount(packets)} between ${host} and the capture point`);
    if (lostNear.length > MAX_NEAR) parts.push(`near ${counted(lostNear.length - MAX_NEAR, 'other host')}`);
    if (sides.unknown > 0) parts.push(`${formatCount(sides.unknown)} not known where`);
    lines.push(`packets were missing or late: ${parts.join(', ')}`);
  }
  if (worstPath !== undefined && connections > 1)
    lines.push(
      `most retransmissions: ${worstPath.from} → ${worstPath.to}, ${counted(worstPath.retransmitted, 'packet')}`,
    );
  if (incast !== undefined) lines.push(`incast: ${counted(incast.senders, 'sender')} to ${incast.receiver}`);
  return lines;
}
