/** A sender whose ICRCs are all wrong, and the mistake behind them. */
import { counted } from '../../units.ts';
import type { Certainty, ChainEvent } from '../facts.ts';
import type { Direction } from '../track/direction.ts';
import { type IcrcTrial, mistakeText, type RewrittenField } from '../track/icrc-trial.ts';
import { event, inOrder } from './chain.ts';
import {
  type Capture,
  type Cause,
  findingOf,
  Rank,
  rule,
  SILENCE,
  type Silence,
  Stage,
  type Subject,
} from './rule.ts';

/** Advice where packets with wrong ICRCs are answered. */
const ANSWERED =
  'As such packets are answered, perhaps the capture shows them before the adapter writes the ICRC.';
const ANSWERED_REWRITTEN = 'As such packets are answered, perhaps a tool rewrote the addresses in the file.';

/** No packet of the direction has a right ICRC. */
const trialOf = ({ path: { trial }, counts }: Direction): IcrcTrial | undefined =>
  counts.icrcBad < 2 || counts.icrcBad < counts.packets ? undefined : trial;

const firstOf = (direction: Direction, sender: string): ChainEvent[] =>
  event(
    direction.record.events.get('icrc-bad')?.frames[0],
    `the first of ${counted(direction.counts.icrcBad, 'packet')} from ${sender}, all with a wrong ICRC`,
  );

function causes(subject: Subject): Cause<'icrc-never-right', Silence | 'icrc-bad' | 'ghost-acks'>[] {
  const { direction, requester, responder } = subject;
  const { counts, peer } = direction;
  const trial = trialOf(direction);
  if (trial === undefined) return [];
  const frames = direction.record.events.get('icrc-bad')?.frames ?? [];
  const answer = peer !== undefined && peer.counts.packets > 0 ? '' : '; nobody answers such packets';
  const { what, advice, culprit, certainty } = explanation(requester, trial);
  const isAnswered = counts.requests > 0 && (peer?.counts.responses ?? 0) > 0;
  const answered = culprit === 'network' ? ANSWERED_REWRITTEN : ANSWERED;
  const hint = isAnswered ? `${advice} ${answered}` : advice;
  // Both ends make one mistake, or one device rewrites the packets of both.
  const other = peer && trialOf(peer);
  const isOfBoth = other !== undefined && explanation(requester, other).what === what;
  const chain = firstOf(direction, requester);
  return [
    {
      kind: 'icrc-never-right',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 10,
      certainty,
      text: isOfBoth
        ? `No ICRC from ${requester} or ${responder} is right: ${what.replace(/^its ICRC/, 'each')}.`
        : `No ICRC from ${requester} is right: ${what}${answer}.`,
      culprit,
      chain: isOfBoth ? inOrder([...chain, ...firstOf(peer!, responder)]) : chain,
      explains: [...SILENCE, 'icrc-bad', 'ghost-acks'],
      isSaid: isOfBoth && direction.from === 'b',
      finding: findingOf(
        subject,
        `all ${counted(counts.icrcBad, 'packet')} have a wrong ICRC: ${trial.rewritten !== undefined && trial.mistake === undefined ? `the ${trial.rewritten.field} was changed on the way (NAT)` : what}`,
        hint,
        frames,
        counts.icrcBad,
      ),
    },
  ];
}

/** The sender of connection manager's messages whose ICRCs are all wrong. */
function causesInCapture({ wrongCm }: Capture): Cause<'icrc-never-right', 'cm-unanswered' | 'cm-retries'>[] {
  if (wrongCm === undefined || wrongCm.trial.trials < 2) return [];
  const { source: requester, frame } = wrongCm;
  const { what, culprit, certainty } = explanation(requester, wrongCm.trial);
  return [
    {
      kind: 'icrc-never-right',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 11,
      certainty,
      text: `No ICRC from ${requester} is right: ${what}; nobody answers its connection requests.`,
      culprit,
      chain: event(frame, `the first of ${counted(wrongCm.trial.trials, 'message')} with a wrong ICRC`),
      explains: ['cm-unanswered', 'cm-retries'],
    },
  ];
}

/** Why no ICRC of a sender is right; the mistake or the rewritten field makes that certain. */
interface Explanation {
  what: string;
  advice: string;
  culprit: string;
  certainty: Certainty;
}

function explanation(sender: string, trial: IcrcTrial): Explanation {
  const { mistake, rewritten, isConstant } = trial;
  if (mistake !== undefined) {
    const advice = 'Mend the program or adapter that sends these packets: docs/icrc.md has the rule.';
    return { what: `its ICRC ${mistakeText(mistake)}`, advice, culprit: sender, certainty: 'certain' };
  }
  if (rewritten !== undefined) {
    const advice = 'RoCE does not pass NAT: the ICRC covers addresses, ports and the IPv4 Identification.';
    return { what: rewrittenText(rewritten), advice, culprit: 'network', certainty: 'certain' };
  }
  if (isConstant) {
    const advice = 'RoCE does not pass a device that changes addresses or ports.';
    const what = 'something on the way rewrites headers (NAT)';
    return { what, advice, culprit: 'network', certainty: 'likely' };
  }
  const advice =
    'The sender computes it wrongly, or headers are rewritten on the way (NAT, IP Identification).';
  return { what: 'why is not known', advice, culprit: sender, certainty: 'likely' };
}

const rewrittenText = ({ field, original }: RewrittenField): string =>
  field === 'identification'
    ? 'the IPv4 Identification is changed on the way'
    : `its ${field} address was ${original} (NAT)`;

export const icrcNeverRight = rule({
  kinds: [
    {
      kind: 'icrc-never-right',
      title: 'ICRC never right',
      when: 'no packet of a direction has a right ICRC: its sender, or something on the way, makes it wrong',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
  causeInCapture: causesInCapture,
});
