/** Pause frames as `roce dump` prints them. */
import { macText, type PauseFrame } from '@node-roce/capture';
import type { PacketRecord } from '@node-roce/pcap';
import { describePause, PauseOpcode } from '@node-roce/wire';
import { seconds, type TimeForm } from '../time-form.ts';
import { placeOf } from './format.ts';

interface PauseEntry {
  pause: PauseFrame;
  /** Nanoseconds since 1970 and since the first frame; undefined where the file has no time. */
  time: bigint | undefined;
  relativeTime: bigint | undefined;
}

export const pauseEntry = (pause: PauseFrame, { hasTimestamp, timestamp }: PacketRecord): PauseEntry => ({
  pause,
  time: hasTimestamp ? timestamp : undefined,
  relativeTime: hasTimestamp ? BigInt(pause.time) : undefined,
});

/** `    7    0.001000  02:00:00:00:00:01 PFC priority 3 65535 quanta`. */
export function pauseLine(
  { pause, time, relativeTime }: PauseEntry,
  form?: TimeForm,
): [prefix: string, text: string] {
  return [
    placeOf(String(pause.frame), relativeTime, time, form),
    `${macText(pause.source)} ${describePause(pause)}`,
  ];
}

/** The object of `--json`: `priorities` is absent for PAUSE, which stops all of them. */
export function pauseJson({ pause, time, relativeTime }: PauseEntry): Record<string, unknown> {
  const { frame, source, opcode, enabled, quanta } = pause;
  const isPfc = opcode === PauseOpcode.PFC;
  const priorities = [...quanta].flatMap((amount, priority) =>
    enabled & (1 << priority) ? [{ priority, quanta: amount }] : [],
  );
  return {
    frame,
    time: time === undefined ? null : seconds(time),
    relativeTime: relativeTime === undefined ? null : seconds(relativeTime),
    type: isPfc ? 'PFC' : 'PAUSE',
    srcMac: macText(source),
    ...(isPfc ? { priorities } : { quanta: quanta[0] }),
  };
}
