/** CNPs came, and the capture shows no mark. */
import { counted, formatQp } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { event } from './chain.ts';
import {
  type Capture,
  type Cause,
  finding,
  moment,
  ofCapture,
  Rank,
  rule,
  Stage,
  type Subject,
} from './rule.ts';

/** CNPs that are no accident. */
const SEVERAL = 2;
/** A finding names no more. */
const MAX_FRAMES = 100;

function find(subject: Subject): FindingOf<'cnp'>[] {
  const { requester } = subject;
  const { record, peer } = subject.direction;
  const cnps = peer?.record.events.get('cnp');
  if (cnps === undefined || record.events.get('ecn-marked') !== undefined) return [];
  return [
    finding(
      subject,
      cnps,
      'cnp',
      'note',
      `${counted(cnps.count, 'CNP')} sent to ${requester}, the first ${moment(cnps.start)}, but no CE-marked packet was captured`,
      'Marks are set behind the place of capture; some adapters also send a CNP with a NAK.',
    ),
  ];
}

/** A capture of CNPs alone, which shows no connection: they are all that it tells. Where there are connections, their rows name CNPs. */
function findInCapture({ connections, lone, addressOf }: Capture): FindingOf<'cnp'>[] {
  // A wrong ICRC: it may be no CNP.
  const right = lone.filter(({ path }) => path.trial === undefined);
  const [first] = right;
  const events = right.flatMap(({ record }) => record.events.get('cnp') ?? []);
  if (connections.length > 0 || first === undefined) return [];
  const { source, destination, destQp } = first.key;
  const start = Math.min(...events.map((each) => each.start));
  const place = `from ${addressOf(source)} to ${addressOf(destination)} ${formatQp(destQp)}`;
  const count = events.reduce((sum, each) => sum + each.count, 0);
  const found = ofCapture(
    'cnp',
    'note',
    count,
    `${counted(count, 'CNP')}, the first ${moment(start)} ${place}; no other packet of ${right.length > 1 ? `these ${right.length} queue pairs` : 'this queue pair'} was captured`,
    'Packets to the senders of these CNPs met a congested queue: capture those packets, too.',
    Math.max(...events.map((each) => each.end)),
  );
  const frames = events.flatMap((each) => each.frames).sort((x, y) => x - y);
  return [{ ...found, start, frames: frames.slice(0, MAX_FRAMES) }];
}

/**
 * The receiver saw marks that the capture does not show. Not where an adapter may have sent the CNPs with its NAKs. Queues do not mark packets that
 * are Not-ECT (RFC 3168 §5): where all pass so, one CNP is no evidence. Several are: the packets are made ECT, or are marked all the same, behind
 * the capture point.
 */
function causes({ direction, requester, responder }: Subject): Cause<'cnp', 'cnp'>[] {
  const { counts, record, peer } = direction;
  const cnps = peer?.record.events.get('cnp');
  if (peer === undefined || cnps === undefined || record.events.get('ecn-marked') !== undefined) return [];
  if (counts.ecnCapable === 0 && cnps.count < SEVERAL) return [];
  if (Object.keys(peer.counts.naks).length > 0 || peer.counts.rnrNaks > 0) return [];
  return [
    {
      kind: 'cnp',
      severity: 'note',
      rank: Rank.NOTE,
      weight: 1,
      certainty: 'likely',
      text: `A queue between the capture point and ${responder} is congested: ${counted(cnps.count, 'CNP')} came to ${requester}.`,
      culprit: 'network',
      chain: event(cnps.frames[0], `the first CNP of ${responder}: a packet came to it with a mark (CE)`),
      hint: 'Queues behind the capture point mark packets: look there for incast or a slower link.',
      explains: [],
    },
  ];
}

export const cnp = rule({
  kinds: [{ kind: 'cnp', title: 'CNPs without marks', when: 'CNPs came, and the capture shows no mark' }],
  find,
  findInCapture,
  stage: Stage.LAST,
  cause: causes,
});
