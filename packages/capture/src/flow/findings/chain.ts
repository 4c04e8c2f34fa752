/** Events of the chain that proves a cause. */
import type { Certainty, ChainEvent, Grade } from '../facts.ts';

/** An event of a chain; none where the capture has no frame of it. */
export const event = (frame: number | undefined, text: string): ChainEvent[] =>
  frame === undefined || frame === 0 ? [] : [{ frame, text }];

/** The grade of a cause as the certainty of a verdict. */
export const certaintyOf = (grade: Grade): Certainty => (grade === 'not-shown' ? 'not-known' : grade);

/** The events in the order of their frames, each frame once. */
export function inOrder(events: ChainEvent[]): ChainEvent[] {
  const seen = new Set<number>();
  return events
    .filter(({ frame }) => frame !== undefined && !seen.has(frame) && seen.add(frame))
    .sort((x, y) => x.frame! - y.frame!);
}
