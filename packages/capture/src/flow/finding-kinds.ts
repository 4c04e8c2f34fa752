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
  'damaged-packets': 'RoCE packets could not be parsed',
  'capture-drops': 'the capturing system reports drops',
  'too-many-connections': 'more directions than the analysis follows',
  'one-direction': 'reliable connections of which one direction is in the capture',
  'nak-invalid-request': 'a NAK with this code ended the queue pair',
  'nak-remote-access-error': 'a NAK with this code ended the queue pair',
  'nak-remote-operational-error': 'a NAK with this code ended the queue pair',
  'nak-invalid-rd-request': 'a NAK with this code ended the queue pair',
  'nak-reserved-nak': 'a NAK with a reserved code ended the queue pair',
  'retries-exceeded': 'the last request was retransmitted and never answered',
  'rnr-retries-exceeded': 'the last request was refused with RNR NAK each time',
  retransmissions: 'packets were retransmitted for another reason than RNR NAKs',
  rnr: 'the receiver had no receive posted',
  'uc-loss': 'PSNs of an unreliable connection are missing',
  'capture-loss': 'packets were acknowledged but are not in the capture',
  'icrc-bad': 'packets have a wrong ICRC',
  'repeated-frames': 'the capture shows frames twice',
  'ecn-marked': 'packets are marked as congested',
  cnp: 'CNPs came, and the capture shows no mark',
  'ghost-acks': 'ACKs of what was acknowledged before',
} as const;

/** The stable name of a finding's kind. */
export type FindingKind = keyof typeof FINDING_KINDS;
