/** Retransmissions: how often a requester went back, how many packets, why, and on whose side of the tap. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { FindingOf, Grade, Recovery, RetransmitCause } from '../facts.ts';
import { reasonOf } from '../record/recoveries.ts';
import { event } from './chain.ts';
import { type Cause, finding, moment, Rank, rule, Stage, type Subject } from './rule.ts';

/** The causes, as the object of "after". */
const CAUSE_WORDS: Readonly<Record<RetransmitCause, readonly [one: string, many: string]>> = {
  timeout: ['an ACK timeout', 'ACK timeouts'],
  'sequence-nak': ['a sequence NAK', 'sequence NAKs'],
  'implied-nak': ['a gap in responses', 'gaps in responses'],
  rnr: ['an RNR wait', 'RNR waits'],
  probe: ['a probe before the ACK timeout', 'probes before the ACK timeout'],
  unknown: ['', ''],
};

/** Retransmissions of one direction; none where RNR waits are all there is. */
function find(subject: Subject): FindingOf<'retransmissions'>[] {
  const { direction } = subject;
  const {
    counts,
    record: { events },
  } = direction;
  const sent = events.get('retransmission');
  if (sent === undefined || counts.retransmitted === counts.retransmitCauses.rnr) return [];
  const causes = (Object.keys(CAUSE_WORDS) as RetransmitCause[])
    .filter((cause) => counts.goBacks > 0 && events.get(`go-back-${cause}`) !== undefined)
    .map((cause) => causeText(subject, cause));
  const share = formatShare(counts.retransmitted, counts.requests);
  const packets = counted(counts.retransmitted, 'packet');
  const events_ = counted(counts.goBacks, 'go-back-N event');
  const what = `${packets} retransmitted in ${events_} (${share} of the requests sent)`;
  const where = sideText(
    direction.record.recoveries.kept.filter((recovery) => {
      const { reason } = reasonOf(recovery, direction.isDoubled);
      return reason !== 'spurious' && reason !== 'stood-still';
    }),
  );
  return [
    finding(
      subject,
      sent,
      'retransmissions',
      'warning',
      `${what}${causes.length > 0 ? `: ${causes.join('; ')}` : ''}${where}`,
      hint(subject),
    ),
  ];
}

/** `2 after ACK timeouts (1 likely; the first at 0.071 s, up to 65.1 ms ≈ timeout 14)`. */
function causeText(
  {
    direction: {
      counts,
      record: { events, recoveries },
    },
  }: Subject,
  cause: RetransmitCause,
): string {
  const { count, start, most } = events.get(`go-back-${cause}`)!;
  const first = recoveries.kept.find((recovery) => recovery.cause === cause);
  const details = [
    ...gradeText(counts.goBackCauses[cause]),
    `${count > 1 ? 'the first ' : ''}${moment(start)}`,
  ];
  if (first?.evidence !== undefined) details.push(`${EVIDENCE[cause]} in frame ${first.evidence}`);
  if ((cause === 'timeout' || cause === 'probe') && most > 0) {
    const longest = recoveries.kept.find((recovery) => recovery.cause === cause && recovery.wait === most);
    const named = longest?.timeout === undefined ? '' : ` ≈ timeout ${longest.timeout}`;
    details.push(`silence of ${count > 1 ? 'up to ' : ''}${formatDuration(most)}${named}`);
  }
  const words = CAUSE_WORDS[cause][count === 1 ? 0 : 1];
  return `${count} ${cause === 'unknown' ? 'unexplained' : `after ${words}`} (${details.join(', ')})`;
}

const EVIDENCE: Readonly<Record<RetransmitCause, string>> = {
  timeout: 'unanswered packet',
  'sequence-nak': 'NAK',
  'implied-nak': 'a response behind the missing one',
  rnr: 'RNR NAK',
  probe: 'unanswered packet',
  unknown: '',
};

function gradeText({ certain, likely }: Record<Grade, number>): string[] {
  if (likely === 0) return [];
  return [certain === 0 ? 'likely' : `${likely} of them likely`];
}

/** Where packets were lost or late, as far as the recoveries that were kept show. */
function sideText(recoveries: readonly Omit<Recovery, 'from' | 'reason'>[]): string {
  const count = (side: Recovery['side']) => recoveries.filter((recovery) => recovery.side === side).length;
  const [requester, responder] = [count('requester'), count('responder')];
  const damaged = recoveries.filter((recovery) => recovery.damaged !== undefined).length;
  const parts: string[] = [];
  if (responder > 0) parts.push(`${responder} on the responder's side`);
  if (requester > 0) parts.push(`${requester} on the requester's side`);
  const lost = parts.length === 0 ? '' : `; lost or late, seen from the capture: ${parts.join(', ')}`;
  return `${lost}${damaged === 0 ? '' : `; ${damaged} for damaged packets (wrong ICRC)`}`;
}

function hint({ direction: { counts } }: Subject): string {
  const { timeout } = counts.goBackCauses;
  const losses =
    'look at drops and CRC errors in switches and NICs (PFC, ECN, buffers), and at reordering paths';
  return timeout.certain > 0
    ? `Packets or ACKs do not arrive, and each ACK timeout stalls the connection: ${losses}.`
    : `Packets do not arrive, or not in order: ${losses}.`;
}

/** Retransmissions of which nothing is known. */
function causes(subject: Subject): Cause<'retransmissions', 'retransmissions'>[] {
  const { direction } = subject;
  const {
    counts,
    record: { recoveries },
  } = direction;
  const kept = recoveries.kept.filter((recovery) => {
    const { reason } = reasonOf(recovery, direction.isDoubled);
    return reason === 'not-known' || reason === 'unanswered';
  });
  if (kept.length === 0 || kept.length < recoveries.kept.length / 2) return [];
  const { requester, responder } = subject;
  return [
    {
      kind: 'retransmissions',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: 0,
      certainty: 'not-known',
      text: `${requester} sent ${counted(counts.retransmitted, 'packet')} to ${responder} again; why is not known.`,
      culprit: undefined,
      chain: event(kept[0].frame, `${requester} sends a packet again`),
      explains: ['retransmissions'],
    },
  ];
}

export const retransmissions = rule({
  kinds: [
    {
      kind: 'retransmissions',
      title: 'Packets retransmitted',
      when: 'packets were retransmitted for another reason than RNR NAKs',
    },
  ],
  find,
  stage: Stage.OTHER,
  cause: causes,
});
