/** Events of the chain that proves a cause. */
import type { ChainEvent } from '../facts.ts';

/** An event of a chain; none where the capture has no frame of it. */
export const event = (frame: number | undefined, text: string): ChainEvent[] =>
  frame === undefined || frame === 0 ? [] : [{ frame, text }];

/** The events in the order of their frames, each frame once. */
export function inOrder(events: ChainEvent[]): ChainEvent[] {
  const seen = new Set<number>();
  return events
    .filter(({ frame }) => frame !== undefined && !seen.has(frame) && seen.add(frame))
    .sort((x, y) => x.frame! - y.frame!);
}
