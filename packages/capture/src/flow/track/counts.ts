/** The counts of a direction, all 0. */
import type { DirectionCounts } from '../facts.ts';
import { newCauses, newGoBackCauses, newGrades } from '../record/recoveries.ts';

export const newCounts = (): DirectionCounts => ({
  packets: 0,
  bytes: 0,
  requests: 0,
  responses: 0,
  acks: 0,
  naks: {},
  rnrNaks: 0,
  retransmitted: 0,
  retransmittedBytes: 0,
  retransmitCauses: newCauses(),
  retransmitGrades: newGrades(),
  goBacks: 0,
  goBackCauses: newGoBackCauses(),
  repeatedResponses: 0,
  repeatedFrames: 0,
  late: 0,
  mostOvertaken: 0,
  damagedAccepted: 0,
  gaps: 0,
  missedByCapture: 0,
  ghostAcks: 0,
  icrcBad: 0,
  icrcTaken: 0,
  icrcUnchecked: 0,
  ecnCapable: 0,
  ecnMarked: 0,
  cnps: 0,
});

/** The counts of a direction that the capture has nothing of: one object for all of them. */
export const NO_COUNTS: DirectionCounts = newCounts();
