/** Pause frames: a port that could not take more stopped its link partner. */
import { PAUSE_QUANTUM_BITS } from '@node-roce/wire';
import { counted, formatDuration } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import type { PausePriority, PauseSender } from '../record/pauses.ts';
import { event } from './chain.ts';
import { type Capture, type Cause, moment, Rank, rule } from './rule.ts';

/** A speed that quanta are shown for where the capture does not state one, bits per second. */
const COMMON_SPEED = 100e9;

function find({ pauses }: Capture): FindingOf<'pause'>[] {
  return pauses
    .filter(({ priorities }) => priorities.some(({ pauses }) => pauses > 0))
    .map((sender) => {
      const { mac, addresses, frames, start, end, priorities, firstFrames } = sender;
      const stopped = priorities.filter(({ pauses }) => pauses > 0).map(describe);
      const [only] = addresses;
      const name = addresses.length === 1 ? `${mac} (${only})` : mac;
      const statement = `sent ${counted(frames, 'pause frame')} from ${moment(start).slice(3)} to ${moment(end).slice(3)}: it paused its link partner: ${stopped.join('; ')}; ${effectText(sender)}`;
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
  const what = priority < 0 ? 'all priorities (PAUSE)' : `priority ${priority} (PFC)`;
  const perFrame = `up to ${mostQuanta} quanta per frame`;
  const time =
    pausedTime === undefined
      ? ` (${formatDuration((mostQuanta * PAUSE_QUANTUM_BITS * 1e9) / COMMON_SPEED)} at 100 Gb/s)`
      : `, ${formatDuration(pausedTime)} in all`;
  return `${what} ${counted(pauses, 'time')}, resumed ${counted(resumes, 'time')}, ${perFrame}${time}`;
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

function causesOf(sender: PauseSender): Cause<'pause', 'stalls'>[] {
  const { mac, addresses, frames, priorities, firstFrames, held } = sender;
  const count = priorities.reduce((sum, { pauses }) => sum + pauses, 0);
  if (count === 0) return [];
  const name = addresses.length === 1 ? addresses[0] : `Port ${mac}`;
  const isPfc = priorities.some(({ priority, pauses }) => priority >= 0 && pauses > 0);
  const what = `${name} paused its link partner ${counted(count, 'time')} (${isPfc ? 'PFC' : 'PAUSE'})`;
  const isHeld = held.stalls > 0;
  const effect = isHeld
    ? `RoCE traffic${held.waiting === undefined ? '' : ` of ${held.waiting}`} stood still for ${formatDuration(held.time)}`
    : held.packets === 0
      ? 'no RoCE traffic was held up'
      : `${counted(held.packets, 'RoCE packet')} came meanwhile; no long stall`;
  return [
    {
      kind: 'pause',
      severity: isHeld ? 'warning' : 'note',
      rank: isHeld ? Rank.COSTS : Rank.NOTE,
      weight: isHeld ? 4 * held.stalls : 1,
      certainty: isHeld ? 'likely' : 'certain',
      text: `${what}; ${effect}.`,
      culprit: addresses.length === 1 ? name : 'network',
      chain: [
        ...event(firstFrames[0], `the first of ${counted(frames, 'pause frame')} of ${name}`),
        ...event(held.frame, `the first RoCE packet after a pause of ${formatDuration(held.longest)}`),
      ],
      explains: isHeld ? ['stalls'] : [],
    },
  ];
}

export const pause = rule({
  kinds: [
    { kind: 'pause', title: 'Pause frames', when: 'a port stopped its link partner with PFC or PAUSE' },
  ],
  findInCapture: find,
  causeInCapture: ({ pauses }) => pauses.flatMap(causesOf),
});
