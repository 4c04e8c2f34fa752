/**
 * The table of findings: all rules, in the order in which docs/capture-causes.md lists their kinds. Titles, the schema's names and the rows of
 * the docs follow from it.
 */
import { badChecksum } from './bad-checksum.ts';
import { captureDrops } from './capture-drops.ts';
import { captureLoss } from './capture-loss.ts';
import { clockBack } from './clock-back.ts';
import { cmLoss } from './cm-loss.ts';
import { cmRejected } from './cm-rejected.ts';
import { cmRetries } from './cm-retries.ts';
import { cmUnanswered } from './cm-unanswered.ts';
import { cnp } from './cnp.ts';
import { cutHeaders } from './cut-headers.ts';
import { damagedFile } from './damaged-file.ts';
import { damagedOnTheWay } from './damaged-on-the-way.ts';
import { damagedPackets } from './damaged-packets.ts';
import { ecnMarked } from './ecn-marked.ts';
import { flushCoveredTwice } from './flush-covered-twice.ts';
import { gaveUp } from './gave-up.ts';
import { ghostAcks } from './ghost-acks.ts';
import { gidMismatch } from './gid-mismatch.ts';
import { hostStoodStill } from './host-stood-still.ts';
import { icmpError } from './icmp-error.ts';
import { icrcBad } from './icrc-bad.ts';
import { icrcNeverRight } from './icrc-never-right.ts';
import { idleLikeTimeout } from './idle-like-timeout.ts';
import { nak } from './nak.ts';
import { nothing } from './nothing-decoded.ts';
import { oneDirection } from './one-direction.ts';
import { packetsLost } from './packets-lost.ts';
import { pathMtu } from './path-mtu.ts';
import { pause } from './pause.ts';
import { pkeyMismatch } from './pkey-mismatch.ts';
import { placementWithoutAddress } from './placement-without-address.ts';
import { queuePairsReused } from './queue-pairs-reused.ts';
import { reordering } from './reordering.ts';
import { repeatedFrames } from './repeated-frames.ts';
import { requesterStopped } from './requester-stopped.ts';
import { retransmissions } from './retransmissions.ts';
import { rnr } from './rnr.ts';
import type { Rule } from './rule.ts';
import { slowResponder } from './slow-responder.ts';
import { spuriousRetransmission } from './spurious-retransmission.ts';
import { stalls } from './stalls.ts';
import { tooManyConnections } from './too-many-connections.ts';
import { trafficClass } from './traffic-class.ts';
import { ttlTooSmall } from './ttl-too-small.ts';
import { ucLoss } from './uc-loss.ts';

const TABLE = [
  damagedFile,
  nothing,
  damagedPackets,
  cutHeaders,
  captureDrops,
  tooManyConnections,
  oneDirection,
  nak,
  cmRejected,
  cmUnanswered,
  cmRetries,
  cmLoss,
  gaveUp,
  icrcNeverRight,
  gidMismatch,
  pathMtu,
  icmpError,
  ttlTooSmall,
  pkeyMismatch,
  badChecksum,
  damagedOnTheWay,
  packetsLost,
  spuriousRetransmission,
  hostStoodStill,
  slowResponder,
  requesterStopped,
  trafficClass,
  retransmissions,
  stalls,
  idleLikeTimeout,
  reordering,
  clockBack,
  rnr,
  ucLoss,
  captureLoss,
  icrcBad,
  flushCoveredTwice,
  placementWithoutAddress,
  repeatedFrames,
  queuePairsReused,
  ecnMarked,
  pause,
  cnp,
  ghostAcks,
] as const;

type KindOf<R> = R extends Rule<infer Kind, infer _> ? Kind : never;

/** The stable name of a finding's kind. */
export type FindingKind = KindOf<(typeof TABLE)[number]>;

/** All rules; a kind that one of them folds is a kind of another. */
export const RULES: readonly Rule<FindingKind, FindingKind>[] = TABLE;

const rows = RULES.flatMap(({ kinds }) => kinds);
const column = (name: 'title' | 'when') =>
  Object.fromEntries(rows.map((row) => [row.kind, row[name]])) as Record<FindingKind, string>;

/** The title of each kind, in words. */
export const FINDING_TITLES: Readonly<Record<FindingKind, string>> = column('title');

/** When a finding of each kind is made. */
export const FINDING_KINDS: Readonly<Record<FindingKind, string>> = column('when');
