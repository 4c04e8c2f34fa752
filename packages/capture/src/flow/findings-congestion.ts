/** Findings of ECN marks, CNPs and ghost ACKs of one direction. */
import { counted, formatDuration } from '../units.ts';
import type { Finding } from './analysis.ts';
import { finding, moment, ofSubject, type Subject } from './finding.ts';

export function congestionFindings(subject: Subject): Finding[] {
  const { direction } = subject;
  const { counts, events, peer } = direction;
  const found: Finding[] = [];
  const marked = events.get('ecn-marked');
  const cnps = peer?.events.get('cnp');
  if (marked !== undefined) {
    const share = (100 * counts.ecnMarked) / counts.packets;
    const delay = direction.congestion.delay.result();
    const answer =
      cnps === undefined
        ? 'no CNP came back'
        : `${counted(cnps.count, 'CNP')} came back${delay === undefined ? '' : `, ${formatDuration(delay.p50)} after the mark (median)`}`;
    found.push(
      finding(
        subject,
        marked,
        'ecn-marked',
        cnps === undefined ? 'warning' : 'note',
        `${counted(counts.ecnMarked, 'packet')} (${share.toPrecision(2)} %) marked as congested, the first ${moment(marked.start)}; ${answer}`,
        cnps === undefined
          ? 'The receiver does not answer marks (DCQCN off, or rxe): the sender will not slow down.'
          : 'A queue on the way is past its ECN threshold: look for incast or a slower link.',
      ),
    );
  } else if (cnps !== undefined) {
    found.push(
      finding(
        subject,
        cnps,
        'cnp',
        'note',
        `${counted(cnps.count, 'CNP')} sent to this end, the first ${moment(cnps.start)}, but no CE-marked packet was captured`,
        'Marks are set behind the place of capture; some adapters also send a CNP with a NAK.',
      ),
    );
  }
  const ghosts = peer?.counts.ghostAcks ?? 0;
  if (ghosts > counts.retransmitted && peer !== undefined && ghosts * 10 > peer.counts.acks) {
    found.push(
      ofSubject(
        subject,
        'ghost-acks',
        'note',
        `${counted(ghosts, 'ACK')} of PSNs that were acknowledged before`,
        'Harmless in itself: credit updates, or answers to duplicates.',
        { start: peer.start, end: peer.end, frames: [], frameCount: ghosts },
      ),
    );
  }
  return found;
}
