/** The colours of a ladder, and the style sheet that the lone SVG and the report share. */
import { PACKET_KINDS, type PacketKind } from './kind.ts';

/** The uses of colours. */
export type LadderColor = PacketKind | 'text' | 'faint' | 'rule' | 'paper' | 'chosen';

/** On white: each 4.5 : 1 at least; kinds differ for any colour vision, and in dashes and width. */
export const paperColors: Readonly<Record<LadderColor, string>> = {
  request: '#0b5cad',
  response: '#00735a',
  ack: '#626b78',
  nak: '#c22d0c',
  rnr: '#8a2f86',
  retransmission: '#a34a00',
  cnp: '#7a6100',
  text: '#1c2430',
  faint: '#626b78',
  rule: '#c9cfd8',
  paper: '#ffffff',
  chosen: '#e3eefb',
};

/** Monospaced: the width of a text follows from its length, without a font to measure it with. */
const LADDER_FONT = "ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
/** Pixels of a character at the font size 11. */
export const CHARACTER_WIDTH = 6.7;

/** @param color gives a CSS colour, or a `var(--…)` */
export function ladderStyle(color: (name: LadderColor) => string): string {
  const kinds = PACKET_KINDS.flatMap((kind) => [
    `.ladder .k-${kind} .line{stroke:${color(kind)}}`,
    `.ladder .k-${kind} .head,.ladder .k-${kind} .note{fill:${color(kind)}}`,
  ]);
  return [
    `.ladder text{font:11px ${LADDER_FONT};fill:${color('text')}}`,
    `.ladder .end{font-weight:600;font-size:12px}`,
    `.ladder .faint,.ladder .gap text{fill:${color('faint')}}`,
    `.ladder .life{stroke:${color('rule')};stroke-width:1.5}`,
    `.ladder .gap line{stroke:${color('rule')};stroke-dasharray:2 4}`,
    `.ladder .stall path{stroke:${color('text')};stroke-width:1.5;fill:none}`,
    `.ladder .stall text,.ladder .missing text{font-weight:700;fill:${color('text')}}`,
    `.ladder .recovery text{fill:${color('retransmission')}}`,
    `.ladder .annotation.note text{fill:${color('nak')}}`,
    `.ladder .missing line{stroke:${color('nak')};stroke-dasharray:1 5}`,
    `.ladder .join path{stroke:${color('text')};stroke-width:1.4;fill:none}`,
    `.ladder .join.silence path{stroke-dasharray:4 3}`,
    `.ladder .join .point{fill:${color('text')};stroke:none}`,
    `.ladder .line{fill:none;stroke-width:1.4}`,
    ...kinds,
    `.ladder .k-nak .line,.ladder .k-rnr .line{stroke-width:2.4}`,
    `.ladder .k-retransmission .line{stroke-dasharray:7 3;stroke-width:1.8}`,
    `.ladder .repeated .line{stroke-dasharray:1 3}`,
    `.ladder .cross{stroke:${color('nak')};stroke-width:2;fill:none}`,
    `.ladder .bad .note,.ladder .lost .note{fill:${color('nak')}}`,
    `.ladder .hit{fill:transparent}`,
    // Letters keep their distance from the lines that they stand over.
    `.ladder .label{paint-order:stroke;stroke:${color('paper')};stroke-width:4px;stroke-linejoin:round}`,
  ].join('\n');
}
