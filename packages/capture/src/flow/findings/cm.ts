/** Findings of the connection manager's exchanges: refused, unanswered, retried, and datagrams that are missing. */
import { CmRejReason } from '@node-roce/wire';
import { counted, formatDuration, formatQp } from '../../units.ts';
import type { Finding, Severity } from '../analysis.ts';
import type { CmExchange, GsiGap } from '../pair/cm-exchanges.ts';
import { moment } from './finding.ts';
import type { FindingKind } from './kinds.ts';

export function cmFindings(
  exchanges: readonly CmExchange[],
  gaps: readonly GsiGap[],
  captureEnd: number,
): Finding[] {
  return [
    ...exchanges.flatMap((exchange) => [...failures(exchange, captureEnd), ...retries(exchange)]),
    ...losses(gaps),
  ];
}

/** `10.0.0.1 QP 0x11 → 10.0.0.2 (TCP port 7174)`. */
function nameOf({ active, passive, service }: CmExchange): string {
  const to = service === undefined ? '' : ` (${service})`;
  return `${active.address}${active.qpn < 0 ? '' : ` ${formatQp(active.qpn)}`} → ${passive.address}${to}`;
}

function finding(
  exchange: CmExchange,
  kind: FindingKind,
  severity: Severity,
  statement: string,
  hint: string,
): Finding {
  const { start, end, messages } = exchange;
  const frames = messages.map(({ frame }) => frame);
  const span = { start, end, frames, frameCount: frames.length };
  return { kind, severity, ...textOf(nameOf(exchange), statement), hint, ...span };
}

const textOf = (subject: string, statement: string) => ({
  connection: undefined,
  from: undefined,
  subject,
  statement,
  text: `${subject}: ${statement}`,
});

function failures(exchange: CmExchange, captureEnd: number): Finding[] {
  const { reject, outcome, messages, start, offered, active, passive } = exchange;
  if (reject !== undefined) {
    const by = reject.by === 'passive' ? passive.address : active.address;
    return [
      finding(
        exchange,
        'cm-rejected',
        'error',
        `${by} rejected the connection ${moment(reject.time)}: ${reject.reason}`,
        rejectHint(exchange, reject.code),
      ),
    ];
  }
  if (outcome !== 'unanswered') return [];
  // An MRA is an answer: the passive side has the REQ, and takes longer (IBTA vol 1 §12.6.6).
  if (messages.some(({ name, from }) => name === 'MRA' && from === 'passive')) return [];
  const requests = messages.filter(({ name }) => name === 'REQ' || name === 'SIDR_REQ');
  const waited = captureEnd - requests.at(-1)!.time;
  const patience = offered === undefined ? 0 : 4096 * 2 ** offered.remoteCmResponseTimeout;
  // The capture ended while an answer was still due.
  if (requests.length === 1 && waited < patience) return [];
  const often = requests.length === 1 ? 'once' : counted(requests.length, 'time');
  return [
    finding(
      exchange,
      'cm-unanswered',
      'error',
      `no answer to the connection request is in the capture; it was sent ${often}${intervals(requests)}, first ${moment(start)}`,
      `Is ${passive.address} up, is its RDMA device active, and do packets to UDP port 4791 get there and back (firewall, path MTU)? A mirror of one direction shows no answers either.`,
    ),
  ];
}

function intervals(messages: readonly { time: number }[]): string {
  if (messages.length < 2) return '';
  const spans = messages.slice(1).map(({ time }, i) => time - messages[i].time);
  const [least, most] = [Math.min(...spans), Math.max(...spans)];
  const isEven = most <= least * 1.1;
  return `, ${isEven ? formatDuration(least) : `${formatDuration(least)} to ${formatDuration(most)}`} apart`;
}

function rejectHint({ service, passive, reject }: CmExchange, code: number): string {
  switch (code) {
    case CmRejReason.INVALID_SERVICE_ID:
      return `Nothing listens on ${service ?? 'that service'} at ${passive.address}: start the server, or correct the address and port.`;
    case CmRejReason.CONSUMER_DEFINED:
      return 'The application refused, for a reason of its own that the private data of the REJ may hold (roce dump -x).';
    case CmRejReason.STALE_CONNECTION:
      return 'The peer still has a connection with this queue pair number, from before a restart: it goes away with its timeout; try again.';
    case CmRejReason.TIMEOUT:
      return `${reject?.by === 'active' ? 'The active' : 'The passive'} side gave up waiting: its messages or their answers are lost, or the application takes too long to accept.`;
    case CmRejReason.NO_QP:
    case CmRejReason.NO_EEC:
    case CmRejReason.NO_RESOURCES:
    case CmRejReason.INSUFFICIENT_RESP_RESOURCES:
      return 'The peer is out of resources: look at its limits of queue pairs, memory and max_dest_rd_atomic.';
    case CmRejReason.INVALID_GID:
    case CmRejReason.INVALID_LID:
    case CmRejReason.INVALID_ALT_GID:
      return 'The request names a GID that the peer does not have: check GID index, RoCE version and VLAN of both ends.';
    default:
      return 'IBTA vol 1 §12.6.7.2 lists the reasons; the log of the peer may have details.';
  }
}

function retries(exchange: CmExchange): Finding[] {
  const { retries: count, messages, outcome, connectTime } = exchange;
  if (count === 0 || outcome === 'unanswered') return [];
  const again = messages.filter(({ isRetry }) => isRetry);
  const names = [...new Set(again.map(({ title, from }) => `${title} from the ${from} side`))].map((name) => {
    const all = messages.filter(({ title, from }) => `${title} from the ${from} side` === name);
    return `${name} was sent ${counted(all.length, 'time')}${intervals(all)}`;
  });
  const took = connectTime === undefined ? '' : `; the connection took ${formatDuration(connectTime)}`;
  return [
    finding(
      exchange,
      'cm-retries',
      'warning',
      `${names.join(', ')}${took}`,
      'Messages of the connection manager, or the answers to them, are lost or come late: look for drops on the way, and at how quickly the peer accepts.',
    ),
  ];
}

function losses(gaps: readonly GsiGap[]): Finding[] {
  const hosts = new Map<string, GsiGap[]>();
  for (const gap of gaps) hosts.set(gap.address, [...(hosts.get(gap.address) ?? []), gap]);
  return [...hosts].map(([address, of]) => {
    const missing = of.reduce((sum, gap) => sum + gap.missing, 0);
    const [first] = of;
    const frames = of.flatMap(({ before, after }) => [before, after]).slice(0, 100);
    return {
      kind: 'cm-loss',
      severity: 'note',
      ...textOf(
        address,
        `${counted(missing, 'management datagram')} not in the capture: its QP 1 skipped PSN ${first.firstMissing} between ${moment(first.start).slice(3)} and ${moment(first.end).slice(3)}: lost before the place of capture, or sent to another host`,
      ),
      hint: 'A lost message of the connection manager is retransmitted after its response timeout, often seconds later: that may be a silence before connections open or end.',
      start: first.start,
      end: of.at(-1)!.end,
      frames,
      frameCount: of.length,
    };
  });
}
