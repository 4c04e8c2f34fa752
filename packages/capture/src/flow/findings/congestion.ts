/** Findings of ECN marks, CNPs and ghost ACKs of one direction. */
import { counted, formatDuration, formatShare } from '../../units.ts';
import type { Finding } from '../analysis.ts';
import type { Direction } from '../track/direction.ts';
import { finding, moment, ofSubject, type Subject } from './finding.ts';

/** @param lone directions without another one that have CNPs */
export function congestionFindings(subject: Subject, lone: readonly Direction[]): Finding[] {
  const { direction } = subject;
  const {
    counts,
    peer,
    record: { events },
  } = direction;
  const found: Finding[] = [];
  const marked = events.get('ecn-marked');
  const cnps = peer?.record.events.get('cnp');
  if (marked !== undefined) {
    const share = formatShare(counts.ecnMarked, counts.packets);
    const isSilent = cnps === undefined && peer !== undefined;
    const delay = direction.path.congestion.delay.result();
    const answer =
      cnps === undefined
        ? isSilent
          ? 'no CNP came back'
          : unpairedAnswer(direction, lone)
        : `${counted(cnps.count, 'CNP')} came back${delay === undefined ? '' : `, ${formatDuration(delay.p50)} after the mark (median)`}`;
    found.push(
      finding(
        subject,
        marked,
        'ecn-marked',
        isSilent ? 'warning' : 'note',
        `${counted(counts.ecnMarked, 'packet')} (${share}) marked as congested, the first ${moment(marked.start)}; ${answer}`,
        isSilent
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
        { start: peer.span.start, end: peer.span.end, frames: [], frameCount: ghosts },
      ),
    );
  }
  return found;
}

/** CNPs to the sender of a direction that has no other one, as far as the capture shows. */
function unpairedAnswer(
  { key: { source, destination, vni }, search: { sourceQp } }: Direction,
  lone: readonly Direction[],
): string {
  // A datagram names its sender's queue pair, which its CNPs go to.
  const back = lone.filter(
    (one) =>
      one.key.source === destination &&
      one.key.destination === source &&
      one.key.vni === vni &&
      (sourceQp < 0 || one.key.destQp === sourceQp),
  );
  if (back.length === 0) return 'the capture does not show whether CNPs came back';
  const count = back.reduce((sum, { counts }) => sum + counts.cnps, 0);
  const which = sourceQp < 0 ? ' to this host, for which queue pair the capture does not show' : '';
  return `${counted(count, 'CNP')} came back${which}`;
}
