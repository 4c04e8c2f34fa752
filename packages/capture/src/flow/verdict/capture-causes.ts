/** Causes that no single connection has: different GIDs, pauses, the connection manager, ICMP errors, what could not be read. */
import { FOREIGN } from '../../read/foreign.ts';
import { nothingDecoded } from '../../read/nothing.ts';
import { counted, formatDuration } from '../../units.ts';
import type { CaptureSummary, Finding } from '../analysis.ts';
import type { IcmpError } from '../icmp.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import type { PauseSender } from '../record/pauses.ts';
import type { WrongCm } from '../track/right-icrcs.ts';
import { type Cause, event, Rank } from './cause.ts';
import { ICMP_HINT, ICMP_TEXT, icmpStatement, neverRightCm } from './path-causes.ts';

/** REQs of an exchange of the connection manager, for an event of a chain. */
const requestsOf = ({ messages }: CmExchange) =>
  messages.filter(({ name }) => name === 'REQ' || name === 'SIDR_REQ');

export function captureCauses(
  summary: CaptureSummary,
  exchanges: readonly CmExchange[],
  pauses: readonly PauseSender[],
  icmp: readonly IcmpError[],
  findings: readonly Finding[],
  hasNoConnection: boolean,
  wrongCm: WrongCm | undefined,
): Cause[] {
  return [
    ...exchanges.flatMap((exchange) => cmCauses(exchange, findings)),
    ...pauses.flatMap(pauseCauses),
    ...icmp.map((error) => icmpCause(error, summary)),
    ...unreadable(summary, hasNoConnection),
    ...(wrongCm === undefined || wrongCm.trial.trials < 2
      ? []
      : [neverRightCm(wrongCm.source, wrongCm.trial, wrongCm.frame)]),
  ];
}

function cmCauses(exchange: CmExchange, findings: readonly Finding[]): Cause[] {
  const { active, passive, reject, retries, connectTime, messages } = exchange;
  const [request] = requestsOf(exchange);
  const asked = event(request?.frame, `${active.address} asks ${passive.address} for a connection (REQ)`);
  const base = { certainty: 'certain', weight: 3, explains: ['cm-retries'] } as const;
  const isNamed = (kind: string) =>
    findings.some((finding) => finding.kind === kind && finding.frames[0] === messages[0]?.frame);
  if (reject !== undefined) {
    const [by, whom] = reject.by === 'passive' ? [passive, active] : [active, passive];
    return [
      {
        ...base,
        kind: 'cm-rejected',
        severity: 'error',
        rank: Rank.ENDS,
        text: `${by.address} rejected the connection with ${whom.address}: ${reject.reason}.`,
        culprit: by.address,
        chain: [...asked, ...event(reject.frame, `${by.address} rejects (REJ): ${reject.reason}`)],
        explains: ['cm-rejected', 'cm-retries'],
      },
    ];
  }
  if (isNamed('cm-unanswered')) {
    const count = requestsOf(exchange).length;
    return [
      {
        ...base,
        kind: 'cm-unanswered',
        severity: 'error',
        rank: Rank.ENDS,
        text: `${passive.address} did not answer the connection request of ${active.address}, sent ${counted(count, 'time')}.`,
        culprit: passive.address,
        chain: [
          ...asked,
          ...(count > 1 ? event(requestsOf(exchange).at(-1)!.frame, 'the last REQ, without an answer') : []),
        ],
        explains: ['cm-unanswered', 'cm-retries'],
      },
    ];
  }
  if (retries === 0) return [];
  const again = messages.find(({ isRetry }) => isRetry);
  const took = connectTime === undefined ? '' : `; connecting took ${formatDuration(connectTime)}`;
  return [
    {
      ...base,
      kind: 'cm-retries',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: retries,
      certainty: 'likely',
      text: `Connection messages between ${active.address} and ${passive.address} were lost or late: ${counted(retries, 'retry', 'retries')}${took}.`,
      culprit: 'network',
      chain: [...asked, ...event(again?.frame, `${again?.title} comes again`)],
    },
  ];
}

function pauseCauses(sender: PauseSender): Cause[] {
  const { mac, addresses, frames, priorities, firstFrames, held } = sender;
  const count = priorities.reduce((sum, { pauses }) => sum + pauses, 0);
  if (count === 0) return [];
  const name = addresses.length === 1 ? addresses[0] : `Port ${mac}`;
  const isPfc = priorities.some(({ priority, pauses }) => priority >= 0 && pauses > 0);
  const what = `${name} paused its link partner ${counted(count, 'time')} (${isPfc ? 'PFC' : 'PAUSE'})`;
  const isHeld = held.stalls > 0;
  const effect = isHeld
    ? `RoCE traffic stood still for ${formatDuration(held.time)}`
    : held.packets === 0
      ? 'no RoCE traffic was held up'
      : `${counted(held.packets, 'RoCE packet')} came meanwhile; no long stall`;
  return [
    {
      kind: 'pause',
      severity: isHeld ? 'warning' : 'note',
      rank: isHeld ? Rank.COSTS : Rank.NOTE,
      weight: isHeld ? 4 * held.stalls : 1,
      certainty: isHeld ? 'likely' : 'certain',
      text: `${what}; ${effect}.`,
      culprit: addresses.length === 1 ? name : 'network',
      chain: [
        ...event(firstFrames[0], `the first of ${counted(frames, 'pause frame')} of ${name}`),
        ...event(held.frame, `the first RoCE packet after a pause of ${formatDuration(held.longest)}`),
      ],
      explains: ['pause', ...(isHeld ? (['stalls'] as const) : [])],
    },
  ];
}

function icmpCause(error: IcmpError, summary: CaptureSummary): Cause {
  const { reason, by, source, frame, count } = error;
  const subject = `${source} → ${error.destination}`;
  const statement = icmpStatement(error);
  return {
    kind: 'icmp-error',
    severity: 'error',
    rank: Rank.ENDS,
    weight: 8,
    certainty: 'certain',
    text: ICMP_TEXT[reason](error),
    culprit: by,
    chain: event(frame, `${by} sends the ICMP error, ${counted(count, 'time')} in all`),
    explains: ['cm-unanswered'],
    finding: {
      connection: undefined,
      from: undefined,
      subject,
      statement,
      text: `${subject}: ${statement}`,
      hint: ICMP_HINT[reason],
      start: 0,
      end: summary.duration,
      frames: [frame],
      frameCount: count,
    },
  };
}

function unreadable(summary: CaptureSummary, hasNoConnection: boolean): Cause[] {
  const nothing = nothingDecoded(summary);
  const found: Cause[] = [];
  if (nothing !== undefined && summary.damage === undefined) {
    const [first] = Object.entries(summary.otherKinds);
    const isForeign = first?.[0] === FOREIGN;
    const seen = first === undefined ? '' : `, mostly ${first[0]}`;
    found.push({
      ...NOT_KNOWN,
      kind: 'nothing-decoded',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 20,
      // Their headers alone show that they are no RoCE packets.
      ...(isForeign && { certainty: 'likely' }),
      text: isForeign
        ? `${counted(first[1], 'packet')} to the port of RoCE ${first[1] === 1 ? 'is' : 'are'} other traffic: their headers do not fit RoCE.`
        : `No RoCE packet was decoded in ${counted(summary.frames, 'frame')}${seen}.`,
    });
  }
  const { bad, ok, none } = summary.icrc;
  if (hasNoConnection && bad > 0 && ok + none === 0)
    found.push({
      ...NOT_KNOWN,
      kind: 'nothing-decoded',
      severity: 'warning',
      rank: Rank.ENDS,
      weight: 0,
      certainty: 'likely',
      text: `${counted(bad, 'packet')} to the port of RoCE are other traffic: no ICRC is right, and headers do not fit.`,
    });
  if (summary.damage !== undefined)
    found.push({
      ...NOT_KNOWN,
      kind: 'damaged-file',
      severity: 'error',
      rank: Rank.NOTE,
      weight: 0,
      text: `The file is damaged or cut short: only what stands before the damage was analyzed.`,
    });
  const damaged = Object.values(summary.damaged).reduce((sum, count) => sum + count, 0);
  if (damaged > 0)
    found.push({
      ...NOT_KNOWN,
      kind: 'damaged-packets',
      severity: 'warning',
      rank: damaged * 2 > summary.rocePackets ? Rank.COSTS : Rank.NOTE,
      weight: 0,
      text: `${counted(damaged, 'RoCE packet')} could not be read (${Object.keys(summary.damaged).join(', ').replaceAll('-', ' ')}): the picture is not complete.`,
    });
  return found;
}

const NOT_KNOWN = {
  certainty: 'certain',
  culprit: undefined,
  chain: [],
  explains: [],
} satisfies Partial<Cause>;
