/** The window of time that plots, ladder and messages show. */
import { formatSeconds } from '../../units.ts';
import { clamped, panned, type TimeWindow, zoomed } from './state.ts';

interface Props {
  /** Undefined: all. */
  window: TimeWindow | undefined;
  whole: TimeWindow;
  setWindow: (window: TimeWindow | undefined) => void;
}

export function TimeBar({ window: given, whole, setWindow }: Props) {
  const window = given ?? whole;
  const isAll = given === undefined;
  const typed = (bound: 'from' | 'to') => (event: Event & { currentTarget: HTMLInputElement }) => {
    const next = { ...window, [bound]: Number(event.currentTarget.value) * 1e9 };
    const isFine = event.currentTarget.value.trim() !== '' && next.to > next.from;
    if (isFine) setWindow(clamped(next, whole));
    // An impossible value is replaced by the one in force.
    event.currentTarget.value = formatSeconds(window[bound]);
  };
  const button = (label: string, text: string, next: () => TimeWindow | undefined, disabled = false) => (
    <button
      type="button"
      aria-label={label}
      title={label}
      disabled={disabled}
      onClick={() => setWindow(next())}
    >
      {text}
    </button>
  );
  return (
    <fieldset class="time-bar">
      <legend class="hidden">Time shown by plots, ladder and messages</legend>
      <span class="strong">Time</span>
      {(['from', 'to'] as const).map((bound) => (
        <label key={bound} class="field">
          <span class={bound === 'from' ? 'hidden' : ''}>{bound}</span>
          <input
            class="time"
            inputMode="decimal"
            aria-label={`${bound}, in seconds`}
            value={formatSeconds(window[bound])}
            onChange={typed(bound)}
          />
        </label>
      ))}
      <span class="faint">s</span>
      <span class="buttons">
        {button('Earlier', '←', () => panned(window, -0.25, whole), isAll)}
        {button('Later', '→', () => panned(window, 0.25, whole), isAll)}
        {button('Zoom in', '+', () => zoomed(window, 0.5, whole))}
        {button('Zoom out', '−', () => zoomed(window, 2, whole), isAll)}
        {button('Show all of the time', 'All', () => undefined, isAll)}
      </span>
      <span class="faint wide">Drag over a plot to zoom; click a point for its packet.</span>
    </fieldset>
  );
}
