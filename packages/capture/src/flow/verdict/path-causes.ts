/** Causes that the headers show: path MTU, ICMP errors, TTL, P_Keys, checksums, traffic classes, ICRCs that are never right. */
import { counted, formatCount } from '../../units.ts';
import type { FindingKind } from '../findings/kinds.ts';
import type { IcmpError, IcmpReason } from '../icmp.ts';
import type { Direction } from '../track/direction.ts';
import { type IcrcMistake, type IcrcTrial, mistakeText, type RewrittenField } from '../track/icrc-trial.ts';
import { type Cause, type Context, endsOf, event, findingOf, ofDirections, Rank } from './cause.ts';

/** Kinds of findings that a cause of silence makes superfluous. */
const SILENCE: readonly FindingKind[] = ['retries-exceeded', 'retransmissions', 'stalls', 'one-direction'];
/** Packets shorter than this get through wherever IP does. */
const LONG = 512;

/** Requests of this direction were sent, and none of the last ones was answered. */
export const isUnanswered = (direction: Direction): boolean =>
  direction.ended.failure?.failure === 'retries-exceeded' ||
  // Without the other direction answers may be there that the capture does not show.
  (direction.counts.retransmitted > 0 && direction.peer?.counts.responses === 0);

/** The sender of connection manager's messages whose ICRCs are all wrong. */
export function neverRightCm(
  requester: string,
  { mistake, rewritten, isConstant, trials }: IcrcTrial,
  frame: number,
): Cause {
  const [what, , culprit] = explanation(requester, mistake, rewritten, isConstant);
  return {
    kind: 'icrc-never-right',
    severity: 'error',
    rank: Rank.ENDS,
    weight: 11,
    certainty: mistake !== undefined || rewritten !== undefined ? 'certain' : 'likely',
    text: `No ICRC from ${requester} is right: ${what}; nobody answers its connection requests.`,
    culprit,
    chain: event(frame, `the first of ${counted(trials, 'message')} with a wrong ICRC`),
    explains: ['cm-unanswered', 'cm-retries'],
  };
}

export const pathCauses = (context: Context, icmp: readonly IcmpError[]): Cause[] =>
  ofDirections(context, [
    neverRight,
    (_, direction) => icmpErrors(context, direction, icmp),
    pathMtu,
    ttl,
    pkeys,
    checksums,
    trafficClasses,
  ]);

function neverRight(context: Context, direction: Direction): Cause[] {
  const {
    path: { trial },
    counts,
    peer,
  } = direction;
  if (trial === undefined || counts.icrcBad < 2 || counts.icrcBad < counts.packets) return [];
  const { requester } = endsOf(context, direction);
  const { mistake, rewritten, isConstant } = trial;
  const frames = direction.record.events.get('icrc-bad')?.frames ?? [];
  const answer = peer !== undefined && peer.counts.packets > 0 ? '' : '; nobody answers such packets';
  const [what, hint, culprit] = explanation(requester, mistake, rewritten, isConstant);
  return [
    {
      kind: 'icrc-never-right',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 10,
      certainty: mistake !== undefined || rewritten !== undefined ? 'certain' : 'likely',
      text: `No ICRC from ${requester} is right: ${what}${answer}.`,
      culprit,
      chain: event(
        frames[0],
        `the first of ${counted(counts.icrcBad, 'packet')} from ${requester}, all with a wrong ICRC`,
      ),
      explains: [...SILENCE, 'icrc-bad', 'ghost-acks'],
      finding: findingOf(
        context,
        direction,
        `all ${counted(counts.icrcBad, 'packet')} have a wrong ICRC: ${rewritten !== undefined && mistake === undefined ? `the ${rewritten.field} was changed on the way (NAT)` : what}`,
        hint,
        frames,
        counts.icrcBad,
      ),
    },
  ];
}

/** Why no ICRC of a sender is right, the advice, and the culprit. */
function explanation(
  sender: string,
  mistake: IcrcMistake | undefined,
  rewritten: RewrittenField | undefined,
  isConstant: boolean,
): [what: string, hint: string, culprit: string] {
  if (mistake !== undefined) {
    const hint = 'Mend the program or adapter that sends these packets: docs/icrc.md has the rule.';
    return [`its ICRC ${mistakeText(mistake)}`, hint, sender];
  }
  if (rewritten !== undefined) return rewrittenText(rewritten);
  if (isConstant) {
    const hint = 'RoCE does not pass a device that changes addresses or ports.';
    return ['something on the way rewrites headers (NAT)', hint, 'network'];
  }
  const hint =
    'The sender computes it wrongly, or headers are rewritten on the way (NAT, IP Identification).';
  return ['why is not known', hint, sender];
}

function rewrittenText({ field, original }: { field: string; original: string }): [string, string, string] {
  const hint = 'RoCE does not pass NAT: the ICRC covers addresses, ports and the IPv4 Identification.';
  return field === 'identification'
    ? ['the IPv4 Identification is changed on the way', hint, 'network']
    : [`its ${field} address was ${original} (NAT)`, hint, 'network'];
}

export const ICMP_TEXT: Readonly<Record<IcmpReason, (error: IcmpError) => string>> = {
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

export const icmpStatement = ({ count, reason, mtu }: IcmpError): string =>
  `${counted(count, 'ICMP error')} about packets to the responder: ${reason.replaceAll('-', ' ')}${mtu > 0 ? `, MTU ${mtu}` : ''}`;

export const ICMP_HINT: Readonly<Record<IcmpReason, string>> = {
  'packet-too-big':
    'Lower the path MTU of the queue pairs, or raise the MTU of the link: RoCE packets are 58 to 94 bytes longer than their payload.',
  'port-unreachable': 'Is the RDMA device of that address up (rdma link)? The host itself answered.',
  unreachable: 'Look at routes and neighbours (ip route, ip neigh).',
  prohibited: 'Look at the firewall: UDP port 4791 has to pass both ways.',
  'ttl-exceeded': 'Raise the hop limit of the queue pairs (ah_attr.grh.hop_limit): ibv_rc_pingpong sets 1.',
};

function icmpErrors(context: Context, direction: Direction, errors: readonly IcmpError[]): Cause[] {
  const { requester, responder } = endsOf(context, direction);
  return errors
    .filter(({ source, destination }) => source === requester && destination === responder)
    .map((error) => ({
      kind: 'icmp-error',
      severity: 'error',
      rank: isUnanswered(direction) ? Rank.ENDS : Rank.COSTS,
      weight: 8 + error.count,
      certainty: 'certain',
      text: ICMP_TEXT[error.reason](error),
      culprit: error.by,
      chain: event(error.frame, `${error.by} sends the ICMP error, ${counted(error.count, 'time')} in all`),
      explains: SILENCE,
      finding: findingOf(
        context,
        direction,
        icmpStatement(error),
        ICMP_HINT[error.reason],
        [error.frame],
        error.count,
      ),
    }));
}

function pathMtu(context: Context, direction: Direction): Cause[] {
  const { requester: tracker, peer } = direction;
  if (tracker === undefined || peer === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
  const refused = peer.record.events.get('nak-invalid-request');
  const failed = context.connection.messages.find(
    ({ failure, from }) => failure === 'invalid-request' && from === direction.from,
  );
  const size = tracker.failedSize;
  if (refused !== undefined && failed !== undefined && failed.packets > 1) {
    if (size < LONG || tracker.mostAnswered >= size || failed.operation.includes('READ')) return [];
    // The address and the rights of a WRITE have a code of their own; the receive of a SEND may be too short.
    const what = failed.operation.startsWith('SEND') ? 'its path MTU, or its receive,' : 'its path MTU';
    return [
      mtuCause(
        context,
        direction,
        `${responder} refused a packet of ${formatCount(size)} bytes from ${requester}: ${what} may be smaller.`,
        `a packet of ${formatCount(size)} bytes was refused as an invalid request: ${what.replace('its', "the responder's")} may be smaller`,
        [failed.firstFrame, refused.frames[0]],
        ['nak-invalid-request'],
      ),
    ];
  }
  const { oldestSize, mostAnswered } = tracker;
  if (direction.ended.failure?.failure !== 'retries-exceeded' || oldestSize < LONG) return [];
  if (mostAnswered < 0 || mostAnswered >= oldestSize) return [];
  // An RNR NAK for it shows that it arrives.
  if (direction.ended.failure.rnrNaks > 0) return [];
  return [
    mtuCause(
      context,
      direction,
      `Packets of ${formatCount(oldestSize)} bytes from ${requester} to ${responder} vanish, shorter ones (${formatCount(mostAnswered)}) are answered: path MTU.`,
      `packets of ${formatCount(oldestSize)} bytes are never answered, those of up to ${formatCount(mostAnswered)} are`,
      [tracker.oldestFrame],
      SILENCE,
    ),
  ];
}

function mtuCause(
  context: Context,
  direction: Direction,
  text: string,
  statement: string,
  frames: number[],
  explains: readonly FindingKind[],
): Cause {
  return {
    kind: 'path-mtu',
    severity: 'error',
    rank: Rank.ENDS,
    weight: 6,
    certainty: 'likely',
    text,
    culprit: 'network',
    chain: frames.flatMap((frame, i) => event(frame, i === 0 ? 'the long packet' : 'NAK invalid request')),
    explains,
    finding: findingOf(
      context,
      direction,
      statement,
      'Compare the path MTU of both queue pairs (ibv_devinfo, -m of perftest) with the MTU of every link and switch on the way.',
      frames,
    ),
  };
}

function ttl(context: Context, direction: Direction): Cause[] {
  const { classes } = direction.path.traffic;
  if (!isUnanswered(direction) || classes.some(({ ttl: value }) => value !== 1)) return [];
  const { requester, responder } = endsOf(context, direction);
  return [
    {
      kind: 'ttl-too-small',
      severity: 'error',
      rank: Rank.ENDS,
      weight: 4,
      certainty: 'likely',
      text: `${requester} sends with TTL 1, so no router forwards its packets to ${responder}, which does not answer.`,
      culprit: requester,
      chain: event(direction.span.firstFrame, `${requester} sends with TTL 1`),
      explains: SILENCE,
      finding: findingOf(
        context,
        direction,
        'all packets have a TTL of 1, and none is answered',
        'Set the hop limit of the queue pair (ah_attr.grh.hop_limit) to 64; ibv_rc_pingpong sets 1. Within one subnet a TTL of 1 is enough.',
        [direction.span.firstFrame],
      ),
    },
  ];
}

function pkeys(context: Context, direction: Direction): Cause[] {
  const {
    peer,
    path: { facts },
  } = direction;
  // Once a connection.
  if (peer === undefined || direction.from !== 'a') return [];
  const [one, other] = [facts.pkey, peer.path.facts.pkey];
  if (one < 0 || other < 0) return [];
  const isOther = (one & 0x7fff) !== (other & 0x7fff);
  const areLimited = !isOther && (one & 0x8000) === 0 && (other & 0x8000) === 0;
  if (!isOther && !areLimited) return [];
  const { requester, responder } = endsOf(context, direction);
  const hex = (value: number) => `0x${value.toString(16).padStart(4, '0')}`;
  const isSilent = isUnanswered(direction) || isUnanswered(peer) || direction.counts.retransmitted > 0;
  const what = isOther ? 'different P_Keys' : 'limited members of one partition only';
  return [
    {
      kind: 'pkey-mismatch',
      severity: isSilent ? 'error' : 'warning',
      rank: isSilent ? Rank.ENDS : Rank.NOTE,
      weight: 5,
      certainty: isSilent ? 'likely' : 'certain',
      text: `${requester} and ${responder} use ${what}: ${hex(one)} against ${hex(other)}${isSilent ? '; such packets are dropped' : ''}.`,
      culprit: requester,
      chain: [
        ...event(direction.span.firstFrame, `${requester} sends with P_Key ${hex(one)}`),
        ...event(peer.span.firstFrame, `${responder} sends with P_Key ${hex(other)}`),
      ],
      explains: isSilent ? SILENCE : [],
      finding: findingOf(
        context,
        direction,
        `${what}: ${hex(one)} against ${hex(other)}`,
        'Give both queue pairs the same P_Key (pkey_index): a receiver drops packets of another partition silently. RoCE normally has 0xffff.',
        [direction.span.firstFrame, peer.span.firstFrame],
      ),
    },
  ];
}

function checksums(context: Context, direction: Direction): Cause[] {
  const { checked, badIp, badUdp, zeroIp, firstBad } = direction.path.facts;
  const bad = badIp + badUdp;
  if (bad + zeroIp === 0) return [];
  const { requester } = endsOf(context, direction);
  // A checksum of 0 alone proves nothing: adapters fill it in behind the tap of a sending host.
  const isSilent = bad > 0 && isUnanswered(direction);
  const which = badUdp > badIp + zeroIp ? 'UDP' : 'IPv4 header';
  const count = Math.max(badIp + zeroIp, badUdp);
  const text =
    bad === 0
      ? `${requester} sends IPv4 header checksums of 0: hosts drop such packets, unless its adapter fills them in later.`
      : `${requester} sends wrong ${which} checksums (${count} of ${checked} checked); ${isSilent ? 'hosts drop such packets' : 'adapters may take such packets, hosts drop them'}.`;
  return [
    {
      kind: 'bad-checksum',
      severity: isSilent ? 'error' : bad > 0 ? 'warning' : 'note',
      rank: isSilent ? Rank.ENDS : Rank.NOTE,
      weight: 7,
      certainty: isSilent || bad < 3 ? 'likely' : 'certain',
      text,
      culprit: requester,
      chain: event(firstBad, `the first packet with a wrong ${which} checksum`),
      explains: isSilent ? SILENCE : [],
      finding: findingOf(
        context,
        direction,
        `${count} of ${counted(checked, 'packet')} that were checked have ${bad === 0 ? 'an IPv4 header checksum of 0' : `a wrong ${which} checksum`}`,
        'At a tap on the sending host the adapter fills checksums in later. Elsewhere: damage, or a program that computes them wrongly.',
        [firstBad],
        count,
      ),
    },
  ];
}

function trafficClasses(context: Context, direction: Direction): Cause[] {
  const {
    peer,
    path: { facts },
  } = direction;
  const data = facts.classOf('data');
  if (peer === undefined || data === undefined) return [];
  const { requester, responder } = endsOf(context, direction);
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
        context,
        direction,
        `data have ${text(data)}, ${wrong.map(([name, other]) => `${name} ${text(other!)}`).join(', ')}`,
        'Give both ends the same traffic class (cma_roce_tos, tclass); a lossless queue for data alone does not protect ACKs and CNPs.',
        [data.frame, first!.frame],
      ),
    },
  ];
}
