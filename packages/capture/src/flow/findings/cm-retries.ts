/** Messages of the connection manager came again. */
import { counted, formatDuration } from '../../units.ts';
import type { ChainEvent, FindingOf } from '../facts.ts';
import type { CmEvent, CmExchange } from '../pair/cm-exchanges.ts';
import { event, inOrder } from './chain.ts';
import { asked, cmFinding, intervals } from './cm.ts';
import { type Cause, Rank, rule } from './rule.ts';

const nameOf = ({ name }: CmEvent): string => name.replace('_', ' ');

/** `REQ from the active side`. */
const sentBy = (message: CmEvent): string => `${nameOf(message)} from the ${message.from} side`;

/** `REQ sent 3 times`, or where several messages came again `3 retries (REQ, REP)`. */
function retriesOf({ messages, retries }: CmExchange): string {
  const again = messages.filter(({ isRetry }) => isRetry);
  const names = [...new Set(again.map(nameOf))];
  const senders = new Set(again.map(sentBy)).size;
  return names.length === 1
    ? `${names[0]} sent ${counted(retries + senders, 'time')}`
    : `${counted(retries, 'retry', 'retries')} (${names.join(', ')})`;
}

function find(exchange: CmExchange): FindingOf<'cm-retries'>[] {
  const { retries: count, messages, outcome, connectTime } = exchange;
  if (count === 0 || outcome === 'unanswered') return [];
  const again = messages.filter(({ isRetry }) => isRetry);
  const names = [...new Set(again.map(sentBy))].map((name) => {
    const all = messages.filter((message) => sentBy(message) === name);
    return `${name} was sent ${counted(all.length, 'time')}${intervals(all)}`;
  });
  const took = connectTime === undefined ? '' : `; the connection took ${formatDuration(connectTime)}`;
  return [
    cmFinding(
      exchange,
      'cm-retries',
      'warning',
      `${names.join(', ')}${took}`,
      'Messages of the connection manager, or the answers to them, are lost or come late: look for drops on the way, and at how quickly the peer accepts.',
    ),
  ];
}

/** Retries in a chain. */
const MAX_AGAIN = 4;

const comesAgain = (message: CmEvent, { start, ...parties }: CmExchange): ChainEvent[] =>
  event(
    message.frame,
    `${parties[message.from].address} sends the ${nameOf(message)} again, ${formatDuration(message.time - start)} after the first message`,
  );

/** The first answer, if requests came again before it: how soon it followed on the last of them. */
function answered({ messages, passive }: CmExchange): ChainEvent[] {
  const first = messages.findIndex(({ from }) => from === 'passive');
  const before = messages[first - 1];
  if (before === undefined || !before.isRetry) return [];
  const answer = messages[first];
  return event(
    answer.frame,
    `${passive.address} answers (${nameOf(answer)}), ${formatDuration(answer.time - before.time)} after that`,
  );
}

function causes(exchange: CmExchange): Cause<'cm-retries', 'cm-retries'>[] {
  const { active, passive, reject, outcome, retries, connectTime, messages } = exchange;
  if (retries === 0 || reject !== undefined || outcome === 'unanswered') return [];
  const again = messages.filter(({ isRetry }) => isRetry);
  const took = connectTime === undefined ? '' : `; connecting took ${formatDuration(connectTime)}`;
  return [
    {
      kind: 'cm-retries',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: retries,
      certainty: 'likely',
      text: `Connection messages between ${active.address} and ${passive.address} were lost or late: ${retriesOf(exchange)}${took}.`,
      culprit: 'network',
      chain: inOrder([
        ...asked(exchange),
        ...again.slice(0, MAX_AGAIN).flatMap((message) => comesAgain(message, exchange)),
        ...answered(exchange),
      ]),
      explains: [],
    },
  ];
}

export const cmRetries = rule({
  kinds: [
    {
      kind: 'cm-retries',
      title: 'Connection manager retransmitted',
      when: 'messages of the connection manager were retransmitted',
    },
  ],
  findInExchange: find,
  causeInExchange: causes,
});
