/** Messages of the connection manager came again. */
import { counted, formatDuration } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { CmExchange } from '../pair/cm-exchanges.ts';
import { event } from './chain.ts';
import { asked, cmFinding, intervals } from './cm.ts';
import { type Cause, Rank, rule } from './rule.ts';

function find(exchange: CmExchange): FindingOf<'cm-retries'>[] {
  const { retries: count, messages, outcome, connectTime } = exchange;
  if (count === 0 || outcome === 'unanswered') return [];
  const again = messages.filter(({ isRetry }) => isRetry);
  const names = [...new Set(again.map(({ title, from }) => `${title} from the ${from} side`))].map((name) => {
    const all = messages.filter(({ title, from }) => `${title} from the ${from} side` === name);
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

function causes(exchange: CmExchange): Cause<'cm-retries', 'cm-retries'>[] {
  const { active, passive, reject, outcome, retries, connectTime, messages } = exchange;
  if (retries === 0 || reject !== undefined || outcome === 'unanswered') return [];
  const again = messages.find(({ isRetry }) => isRetry);
  const took = connectTime === undefined ? '' : `; connecting took ${formatDuration(connectTime)}`;
  return [
    {
      kind: 'cm-retries',
      severity: 'warning',
      rank: Rank.COSTS,
      weight: retries,
      certainty: 'likely',
      text: `Connection messages between ${active.address} and ${passive.address} were lost or late: ${counted(retries, 'retry', 'retries')}${took}.`,
      culprit: 'network',
      chain: [...asked(exchange), ...event(again?.frame, `${again?.title} comes again`)],
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
