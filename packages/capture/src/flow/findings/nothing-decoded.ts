/** No frame is RoCE that can be decoded, or what came to its port is other traffic. */
import { FOREIGN } from '../../read/foreign.ts';
import { nothingDecoded } from '../../read/nothing.ts';
import type { CaptureSummary } from '../../read/summary.ts';
import { counted } from '../../units.ts';
import type { FindingOf } from '../facts.ts';
import { type Capture, type Cause, ofCapture, Rank, rule } from './rule.ts';

function find({ summary }: Capture): FindingOf<'nothing-decoded'>[] {
  const nothing = nothingDecoded(summary);
  if (nothing === undefined || summary.damage !== undefined) return [];
  const { frames, duration } = summary;
  return [ofCapture('nothing-decoded', 'error', frames, nothing.text, nothing.hint, duration)];
}

const NOT_KNOWN = {
  kind: 'nothing-decoded',
  rank: Rank.ENDS,
  culprit: undefined,
  chain: [],
  explains: [],
} satisfies Partial<Cause<'nothing-decoded', 'damaged-packets'>>;

/** Why nothing was decoded, as far as the frames show it. */
function textOf({ frames, otherKinds, damaged: { truncated = 0 } }: CaptureSummary): string {
  if (truncated > 0)
    return `No RoCE packet was decoded: ${truncated} of ${counted(frames, 'frame')} ${truncated === 1 ? 'is' : 'are'} cut inside the headers.`;
  const [first] = Object.keys(otherKinds);
  const seen = first === undefined ? '' : `, mostly ${first}`;
  return `No RoCE packet was decoded in ${counted(frames, 'frame')}${seen}.`;
}

function causes({ summary, connections, exchanges }: Capture): Cause<'nothing-decoded', 'damaged-packets'>[] {
  const found: Cause<'nothing-decoded', 'damaged-packets'>[] = [];
  if (nothingDecoded(summary) !== undefined && summary.damage === undefined) {
    const [first] = Object.entries(summary.otherKinds);
    const isForeign = first?.[0] === FOREIGN;
    found.push({
      ...NOT_KNOWN,
      // The text has them.
      explains: summary.damaged.truncated === undefined ? [] : ['damaged-packets'],
      severity: 'error',
      weight: 20,
      // Their headers alone show that they are no RoCE packets.
      certainty: isForeign ? 'likely' : 'certain',
      text: isForeign
        ? `${counted(first[1], 'packet')} to the port of RoCE ${first[1] === 1 ? 'is' : 'are'} other traffic: their headers do not fit RoCE.`
        : textOf(summary),
    });
  }
  const { bad, ok, none } = summary.icrc;
  if (connections.length + exchanges.length === 0 && bad > 0 && ok + none === 0)
    found.push({
      ...NOT_KNOWN,
      severity: 'warning',
      weight: 0,
      certainty: 'likely',
      text: `${counted(bad, 'packet')} to the port of RoCE are other traffic: no ICRC is right, and headers do not fit.`,
    });
  return found;
}

export const nothing = rule({
  kinds: [
    {
      kind: 'nothing-decoded',
      title: 'Nothing decoded',
      when: 'no frame of the capture is RoCE that can be decoded',
    },
  ],
  findInCapture: find,
  causeInCapture: causes,
});
