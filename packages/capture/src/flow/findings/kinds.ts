/** The kinds of findings and failures by their stable names, as `--json`, `--csv` and docs/capture.md have them. */

/** NAK codes by name (IBTA vol 1 table 59). */
export type NakName =
  | 'psn-sequence-error'
  | 'invalid-request'
  | 'remote-access-error'
  | 'remote-operational-error'
  | 'invalid-rd-request'
  | 'reserved-nak';

/** A NAK that ends the queue pair: any but the sequence NAK. */
export type FatalNakName = Exclude<NakName, 'psn-sequence-error'>;

/** How a message failed; `flushed`: one before it failed. */
export type MessageFailure = FatalNakName | 'rnr-retries-exceeded' | 'retries-exceeded' | 'flushed';

/** Of each kind its title in words, and when it is made. docs/capture.md and the schema are written from it. */
const KINDS = {
  'damaged-file': ['Damaged file', 'the file is damaged or cut short'],
  'nothing-decoded': ['Nothing decoded', 'no frame of the capture is RoCE that can be decoded'],
  'damaged-packets': [
    'Packets that could not be read',
    'frames that are RoCE, or were cut before that shows, could not be parsed',
  ],
  'cut-headers': ['Headers cut by the capture', 'packets are cut inside their headers'],
  'capture-drops': ['Drops of the capture', 'the capturing system reports drops'],
  'too-many-connections': ['Too many connections', 'more directions than the analysis follows'],
  'one-direction': ['One direction only', 'reliable connections of which one direction is in the capture'],
  'nak-invalid-request': ['Invalid request', 'a NAK with this code ended the queue pair'],
  'nak-remote-access-error': ['Remote access error', 'a NAK with this code ended the queue pair'],
  'nak-remote-operational-error': ['Remote operational error', 'a NAK with this code ended the queue pair'],
  'nak-invalid-rd-request': ['Invalid RD request', 'a NAK with this code ended the queue pair'],
  'nak-reserved-nak': ['Reserved NAK', 'a NAK with a reserved code ended the queue pair'],
  'cm-rejected': ['Connection rejected', 'a REJ of the connection manager refused a connection'],
  'cm-unanswered': [
    'Connection request unanswered',
    'a REQ of the connection manager has no answer in the capture',
  ],
  'cm-retries': ['Connection manager retransmitted', 'messages of the connection manager were retransmitted'],
  'cm-loss': ['Management datagrams missing', 'a host skipped PSNs of its queue pair 1'],
  'retries-exceeded': ['Never answered', 'the last request was retransmitted and never answered'],
  'rnr-retries-exceeded': ['Receiver never ready', 'the last request was refused with RNR NAK each time'],
  'icrc-never-right': [
    'ICRC never right',
    'no packet of a direction has a right ICRC: its sender, or something on the way, makes it wrong',
  ],
  'gid-mismatch': [
    'Different GID types',
    'the two ends send to each other with GIDs of different kinds, so that neither takes the packets of the other',
  ],
  'path-mtu': ['Path MTU', 'long packets are refused, or never answered while shorter ones are'],
  'icmp-error': ['ICMP error', 'a router or host refused packets of the connection with an ICMP message'],
  'ttl-too-small': [
    'TTL of 1',
    'packets that are not answered have a TTL of 1, so that no router forwards them',
  ],
  'pkey-mismatch': ['Different P_Keys', 'the two ends send with P_Keys that do not match'],
  'bad-checksum': ['Wrong checksums', 'packets have a wrong IPv4 or UDP checksum'],
  'damaged-on-the-way': [
    'Packets damaged on the way',
    'the receiver missed a packet that came with a wrong ICRC, and the requester retransmitted it',
  ],
  'packets-lost': ['Packets lost', 'a packet, or the answer to it, was lost and retransmitted'],
  'spurious-retransmission': [
    'Needless retransmissions',
    'packets were retransmitted that had arrived: their answers came before, or came twice',
  ],
  'host-stood-still': ['Host stood still', 'a host answered nothing for a while, and then every copy'],
  'slow-responder': ['Slow responder', 'answers came late, and nothing was retransmitted meanwhile'],
  'requester-stopped': [
    'Requester stopped',
    'a requester went silent inside a message whose packets were all acknowledged, as rxe does after a crossing ACK',
  ],
  'traffic-class': ['Different traffic classes', 'ACKs or CNPs have another DSCP or priority than data'],
  retransmissions: ['Packets retransmitted', 'packets were retransmitted for another reason than RNR NAKs'],
  stalls: ['Stalls', 'requests were outstanding and nothing happened for a long time'],
  'idle-like-timeout': [
    'Silence like an ACK timeout',
    'a request came after a silence as long as the ACK timeout agreed',
  ],
  reordering: ['Packets out of order', 'packets were overtaken by packets sent after them'],
  'clock-back': ['Times that go back', 'times of frames go back'],
  rnr: ['Receiver not ready', 'the receiver had no receive posted'],
  'uc-loss': ['Packets lost on UC', 'PSNs of an unreliable connection are missing'],
  'capture-loss': ['Packets missing in the capture', 'packets were acknowledged but are not in the capture'],
  'icrc-bad': ['Wrong ICRC', 'packets have a wrong ICRC'],
  'placement-without-address': [
    'Placement without an address',
    'FLUSHes or ATOMIC_WRITEs have the address 0, as rxe of Linux 6.12 sends them again',
  ],
  'flush-covered-twice': ['ICRC of rxe’s FLUSH', 'FLUSHes have the ICRC that rxe of Linux 6.12 gives them'],
  'repeated-frames': ['Frames shown twice', 'the capture shows frames twice'],
  'queue-pairs-reused': [
    'Queue pair numbers used again',
    'another connection had the same two queue pair numbers before, or seems to have had',
  ],
  'ecn-marked': ['Congestion marks', 'packets are marked as congested'],
  pause: ['Pause frames', 'a port stopped its link partner with PFC or PAUSE'],
  cnp: ['CNPs without marks', 'CNPs came, and the capture shows no mark'],
  'ghost-acks': ['Repeated ACKs', 'ACKs of packets that were acknowledged before'],
} as const satisfies Record<string, readonly [title: string, when: string]>;

/** The stable name of a finding's kind. */
export type FindingKind = keyof typeof KINDS;

const column = (index: 0 | 1) =>
  Object.fromEntries(Object.entries(KINDS).map(([kind, row]) => [kind, row[index]])) as Record<
    FindingKind,
    string
  >;

/** The title of each kind, in words. */
export const FINDING_TITLES: Readonly<Record<FindingKind, string>> = column(0);

/** When a finding of each kind is made. */
export const FINDING_KINDS: Readonly<Record<FindingKind, string>> = column(1);
