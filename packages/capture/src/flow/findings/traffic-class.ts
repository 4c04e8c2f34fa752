/** ACKs or CNPs have another DSCP or priority than data. */
import { event } from './chain.ts';
import { type Cause, findingOf, Rank, rule, Stage, type Subject } from './rule.ts';

function causes(subject: Subject): Cause<'traffic-class', never>[] {
  const { direction } = subject;
  const {
    peer,
    path: { facts },
  } = direction;
  const data = facts.classOf('data');
  if (peer === undefined || data === undefined) return [];
  const { requester, responder } = subject;
  const others = [
    ['ACKs', peer.path.facts.classOf('ack')],
    ['CNPs', peer.path.facts.classOf('cnp')],
  ] as const;
  const wrong = others.filter(([name, other]) => {
    if (other === undefined) return false;
    const isOther = other.dscp !== data.dscp || (other.pcp >= 0 && data.pcp >= 0 && other.pcp !== data.pcp);
    // CNPs belong into a class of their own, but not into that of all other traffic.
    return isOther && (name === 'ACKs' || other.dscp === 0);
  });
  if (wrong.length === 0) return [];
  const text = ({ dscp, pcp }: { dscp: number; pcp: number }) =>
    `DSCP ${dscp}${pcp > 0 || (data.pcp >= 0 && pcp !== data.pcp) ? ` PCP ${Math.max(0, pcp)}` : ''}`;
  const names = wrong.map(([name]) => name).join(' and ');
  const [, first] = wrong[0];
  return [
    {
      kind: 'traffic-class',
      severity: 'note',
      rank: Rank.NOTE,
      weight: 1,
      certainty: 'certain',
      text: `${names} of ${responder} have ${text(first!)}, data of ${requester} ${text(data)}: other queues, other treatment.`,
      culprit: responder,
      chain: [
        ...event(data.frame, `data: ${text(data)}`),
        ...wrong.flatMap(([name, other]) => event(other!.frame, `${name}: ${text(other!)}`)),
      ],
      explains: [],
      finding: findingOf(
        subject,
        `data have ${text(data)}, ${wrong.map(([name, other]) => `${name} ${text(other!)}`).join(', ')}`,
        'Give both ends the same traffic class (cma_roce_tos, tclass); a lossless queue for data alone does not protect ACKs and CNPs.',
        [data.frame, first!.frame],
      ),
    },
  ];
}

export const trafficClass = rule({
  kinds: [
    {
      kind: 'traffic-class',
      title: 'Different traffic classes',
      when: 'ACKs or CNPs have another DSCP or priority than data',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
});
