/** Findings of pause frames: a port that could not take more stopped its link partner. */
import { PAUSE_QUANTUM_BITS } from '@node-roce/wire';
import { counted, formatDuration } from '../../units.ts';
import type { Finding } from '../analysis.ts';
import type { PausePriority, PauseSender } from '../record/pauses.ts';
import { moment } from './finding.ts';

/** A speed that quanta are shown for where the capture does not state one, bits per second. */
const COMMON_SPEED = 100e9;

export function pauseFindings(senders: readonly PauseSender[]): Finding[] {
  return senders
    .filter(({ priorities }) => priorities.some(({ pauses }) => pauses > 0))
    .map((sender) => {
      const { mac, addresses, frames, start, end, priorities, firstFrames } = sender;
      const stopped = priorities.filter(({ pauses }) => pauses > 0).map(describe);
      const [only] = addresses;
      const name = addresses.length === 1 ? `${mac} (${only})` : mac;
      const statement = `sent ${counted(frames, 'pause frame')} from ${moment(start).slice(3)} to ${moment(end).slice(3)}: it stopped its link partner's ${stopped.join('; ')}; ${effectText(sender)}`;
      return {
        kind: 'pause',
        severity: 'warning',
        connection: undefined,
        from: undefined,
        subject: name,
        statement,
        text: `${name} ${statement}`,
        hint: hintFor(sender),
        start,
        end,
        frames: firstFrames,
        frameCount: frames,
      };
    });
}

function describe({ priority, pauses, resumes, mostQuanta, pausedTime }: PausePriority): string {
  const what = priority < 0 ? 'traffic of all priorities (PAUSE)' : `priority ${priority} (PFC)`;
  const perFrame = `at most ${mostQuanta} quanta a frame`;
  const time =
    pausedTime === undefined
      ? `, ${formatDuration((mostQuanta * PAUSE_QUANTUM_BITS * 1e9) / COMMON_SPEED)} at 100 Gb/s`
      : `, ${formatDuration(pausedTime)} in all`;
  return `${what} ${counted(pauses, 'time')}, let it go on ${counted(resumes, 'time')}, ${perFrame}${time}`;
}

/** The RoCE traffic that the pauses stopped. */
function effectText({ held: { packets, stalls, time } }: PauseSender): string {
  if (stalls > 0) return `RoCE packets waited ${formatDuration(time)} in ${counted(stalls, 'pause')}`;
  return packets === 0
    ? 'no RoCE traffic was held up'
    : `${counted(packets, 'RoCE packet')} came in the pauses, none later than 1 ms`;
}

function hintFor({ addresses, held }: PauseSender): string {
  if (held.packets === 0)
    return 'No RoCE packet waited for these pauses: look elsewhere for the cause of RoCE trouble.';
  if (addresses.length === 1)
    return `The adapter of ${addresses[0]} does not take packets quickly enough: look at its PCIe, its receive buffers and the memory that it writes to; senders to it wait meanwhile.`;
  return 'A port that is congested downstream: find the slow receiver or the incast behind it. Waiting senders may look as if packets were late or lost.';
}
