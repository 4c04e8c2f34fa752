/** The key of a line in a legend: a piece of the line, and its name. */
import type { ThemeColor } from '../themes.ts';

interface Props {
  name: string;
  color: ThemeColor;
  /** Lengths of strokes and gaps; undefined: the line has none. */
  dash?: readonly number[] | undefined;
}

export function LegendKey({ name, color, dash }: Props) {
  return (
    <span class="key">
      <svg viewBox="0 0 22 14" width="22" height="14" aria-hidden="true">
        <path
          d="M0 7h22"
          style={`stroke:var(--${color});stroke-width:2`}
          stroke-dasharray={dash?.join(' ')}
        />
      </svg>
      {name}
    </span>
  );
}
