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

/** When a finding of each kind is made. */
export const FINDING_KINDS = {
  'damaged-file': 'the file is damaged or cut short',
  'nothing-decoded': 'no frame of the capture is RoCE that can be decoded',
  'damaged-packets': 'frames that are RoCE, or were cut before that shows, could not be parsed',
  'cut-headers': 'packets are cut inside their headers',
  'capture-drops': 'the capturing system reports drops',
  'too-many-connections': 'more directions than the analysis follows',
  'one-direction': 'reliable connections of which one direction is in the capture',
  'nak-invalid-request': 'a NAK with this code ended the queue pair',
  'nak-remote-access-error': 'a NAK with this code ended the queue pair',
  'nak-remote-operational-error': 'a NAK with this code ended the queue pair',
  'nak-invalid-rd-request': 'a NAK with this code ended the queue pair',
  'nak-reserved-nak': 'a NAK with a reserved code ended the queue pair',
  'cm-rejected': 'a REJ of the connection manager refused a connection',
  'cm-unanswered': 'a REQ of the connection manager has no answer in the capture',
  'cm-retries': 'messages of the connection manager were retransmitted',
  'cm-loss': 'a host skipped PSNs of its queue pair 1',
  'retries-exceeded': 'the last request was retransmitted and never answered',
  'rnr-retries-exceeded': 'the last request was refused with RNR NAK each time',
  retransmissions: 'packets were retransmitted for another reason than RNR NAKs',
  stalls: 'requests were outstanding and nothing happened for a long time',
  'idle-like-timeout': 'a request came after a silence as long as the ACK timeout agreed',
  reordering: 'packets were overtaken by packets sent after them',
  'clock-back': 'times of frames go back',
  rnr: 'the receiver had no receive posted',
  'uc-loss': 'PSNs of an unreliable connection are missing',
  'capture-loss': 'packets were acknowledged but are not in the capture',
  'icrc-bad': 'packets have a wrong ICRC',
  'placement-without-address':
    'FLUSHes or ATOMIC_WRITEs have the address 0, as rxe of Linux 6.12 sends them again',
  'flush-covered-twice': 'FLUSHes have the ICRC that rxe of Linux 6.12 gives them',
  'repeated-frames': 'the capture shows frames twice',
  'queue-pairs-reused': 'another connection had the same two queue pair numbers before, or seems to have had',
  'ecn-marked': 'packets are marked as congested',
  pause: 'a port stopped its link partner with PFC or PAUSE',
  cnp: 'CNPs came, and the capture shows no mark',
  'ghost-acks': 'ACKs of packets that were acknowledged before',
} as const;

/** The stable name of a finding's kind. */
export type FindingKind = keyof typeof FINDING_KINDS;
