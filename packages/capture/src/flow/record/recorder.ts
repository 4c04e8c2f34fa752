/** Records verdicts: everything that counts, lists or draws a packet reads them here, and nowhere else. */
import type { RocePacket } from '../../read/packet.ts';
import type { Direction } from '../track/direction.ts';
import { Taken, type Verdict } from '../track/verdict.ts';
import { PlotKind } from './series.ts';

/** Adds a request packet to the counts, events, recoveries, plot and ladder of its direction. */
export function recordRequest(direction: Direction, packet: RocePacket, verdict: Verdict): void {
  if (verdict.taken === Taken.REPEATED) {
    direction.counts.requests--;
    direction.counts.bytes -= packet.payloadLength;
    recordRepeated(direction, packet);
    return;
  }
  const again = verdict.taken === Taken.RETRANSMISSION;
  if (again) recordRetransmission(direction, packet, verdict);
  else if (verdict.late) recordLate(direction, packet, verdict);
  const { plot } = direction.record;
  if (again) plot.addRetransmission(packet.time, verdict.psn, packet.frame, verdict.cause);
  else plot.add(packet.time, verdict.psn, packet.frame, PlotKind.REQUEST);
  direction.record.ladder.offer(packet, direction.from, again, again ? verdict : undefined, false);
}

function recordLate({ counts, record }: Direction, { frame, time }: RocePacket, verdict: Verdict): void {
  counts.late++;
  if (verdict.overtaken > counts.mostOvertaken) counts.mostOvertaken = verdict.overtaken;
  record.events.add('late', frame, time, verdict.lateBy);
}

function recordRetransmission(direction: Direction, packet: RocePacket, verdict: Verdict): void {
  const {
    counts,
    record: { events, recoveries },
  } = direction;
  const { frame, time, payloadLength } = packet;
  counts.retransmitted++;
  counts.retransmittedBytes += payloadLength;
  counts.retransmitCauses[verdict.cause]++;
  counts.retransmitGrades[verdict.grade]++;
  events.add('retransmission', frame, time, 1);
  recoveries.add(verdict, packet.psn, frame, time, packet.migReq);
}

/** A frame that the capture has shown before. */
export function recordRepeated(direction: Direction, packet: RocePacket): void {
  direction.counts.packets--;
  direction.counts.repeatedFrames++;
  direction.record.events.add('repeated-frame', packet.frame, packet.time, 1);
  direction.record.ladder.offer(packet, direction.from, false, undefined, true);
}
