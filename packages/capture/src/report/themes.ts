/** The page's colours: those of the ladder and a few more, for light and for dark surroundings. */
import { type LadderColor, paperColors } from '../ladder/style.ts';

export type ThemeColor = LadderColor | 'back' | 'raised' | 'accent' | 'error' | 'warning' | 'note';

export type ThemeColors = Readonly<Record<ThemeColor, string>>;

/** Also the theme of print. Text 4.5 : 1 at least on `paper`, `back` and `chosen` (a test measures it). */
export const lightColors: ThemeColors = {
  ...paperColors,
  back: '#f5f6f8',
  raised: '#ffffff',
  accent: '#0b5cad',
  error: '#b3260a',
  warning: '#9a4a00',
  note: '#4f5a68',
};

export const darkColors: ThemeColors = {
  request: '#6fb3ff',
  response: '#4dcaa5',
  ack: '#9aa6b6',
  nak: '#ff8b70',
  rnr: '#e09adc',
  retransmission: '#ffad5c',
  cnp: '#d8c25a',
  text: '#e4e9f0',
  faint: '#9aa6b6',
  rule: '#343d49',
  paper: '#171c23',
  chosen: '#213550',
  back: '#10141a',
  raised: '#1d232c',
  accent: '#7ab8ff',
  error: '#ff8b70',
  warning: '#ffad5c',
  note: '#a9b4c2',
};

const declarations = (colors: ThemeColors) =>
  Object.entries(colors)
    .map(([name, color]) => `--${name}:${color}`)
    .join(';');

/** The colours as custom properties: the theme of `data-theme`, by default that of the system; light on paper. */
export const themeStyle = (): string =>
  [
    `:root{color-scheme:light;${declarations(lightColors)}}`,
    `@media screen and (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;${declarations(darkColors)}}}`,
    `@media screen{:root[data-theme=dark]{color-scheme:dark;${declarations(darkColors)}}}`,
  ].join('\n');
