/** A router or host refused packets with an ICMP message. */
import { counted } from '../../units.ts';
import type { IcmpError, IcmpReason } from '../icmp.ts';
import { event } from './chain.ts';
import { aboutHosts } from './cm.ts';
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

const ICMP_TEXT: Readonly<Record<IcmpReason, (error: IcmpError) => string>> = {
  'packet-too-big': ({ by, mtu, destination }) =>
    `Packets to ${destination} are too long for ${by}${mtu > 0 ? ` (MTU ${mtu})` : ''}: ICMP reports it.`,
  'port-unreachable': ({ by, destination }) =>
    by === destination
      ? `${by} does not listen for RoCE: it answers UDP port 4791 with ICMP port unreachable.`
      : `${by} refuses packets to ${destination}: ICMP port unreachable.`,
  unreachable: ({ by, destination }) => `${by} has no way to ${destination}: ICMP destination unreachable.`,
  prohibited: ({ by, destination }) =>
    `${by} filters packets to ${destination}: ICMP administratively prohibited.`,
  'ttl-exceeded': ({ by, destination }) =>
    `The TTL of packets to ${destination} ends at ${by}: ICMP time exceeded.`,
};

const icmpStatement = ({ count, reason, mtu }: IcmpError): string =>
  `${counted(count, 'ICMP error')} about packets to the responder: ${reason.replaceAll('-', ' ')}${mtu > 0 ? `, MTU ${mtu}` : ''}`;

const ICMP_HINT: Readonly<Record<IcmpReason, string>> = {
  'packet-too-big':
    'Lower the path MTU of the queue pairs, or raise the MTU of the link: RoCE packets are 58 to 94 bytes longer than their payload.',
  'port-unreachable': 'Is the RDMA device of that address up (rdma link)? The host itself answered.',
  unreachable: 'Look at routes and neighbours (ip route, ip neigh).',
  prohibited: 'Look at the firewall: UDP port 4791 has to pass both ways.',
  'ttl-exceeded': 'Raise the hop limit of the queue pairs (ah_attr.grh.hop_limit): ibv_rc_pingpong sets 1.',
};

function causes(subject: Subject): Cause<'icmp-error', Silence>[] {
  const { direction, requester, responder, capture } = subject;
  return capture.icmp
    .filter(({ source, destination }) => source === requester && destination === responder)
    .map((error) => ({
      kind: 'icmp-error',
      severity: 'error',
      rank: direction.isUnanswered ? Rank.ENDS : Rank.COSTS,
      weight: 8 + error.count,
      certainty: 'certain',
      text: ICMP_TEXT[error.reason](error),
      culprit: error.by,
      chain: event(error.frame, `${error.by} sends the ICMP error, ${counted(error.count, 'time')} in all`),
      explains: SILENCE,
      finding: findingOf(subject, icmpStatement(error), ICMP_HINT[error.reason], [error.frame], error.count),
    }));
}

/** Errors about packets between hosts that no connection is between. */
function causesInCapture({ icmp, connections, summary }: Capture): Cause<'icmp-error', 'cm-unanswered'>[] {
  const named = new Set(connections.map(({ a, b }) => [a.address, b.address].sort().join(' ')));
  return icmp
    .filter(({ source, destination }) => !named.has([source, destination].sort().join(' ')))
    .map((error) => {
      const { reason, by, source, frame, count } = error;
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
          ...aboutHosts(`${source} → ${error.destination}`, statement),
          hint: ICMP_HINT[reason],
          start: 0,
          end: summary.duration,
          frames: [frame],
          frameCount: count,
        },
      };
    });
}

export const icmpError = rule({
  kinds: [
    {
      kind: 'icmp-error',
      title: 'ICMP error',
      when: 'a router or host refused packets of the connection with an ICMP message',
    },
  ],
  stage: Stage.PATH,
  cause: causes,
  causeInCapture: causesInCapture,
});
