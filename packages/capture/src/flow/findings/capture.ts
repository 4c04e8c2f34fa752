/** Findings about the capture as a whole: what it lost, cut or could not read, and what it shows one side of. */
import { nothingDecoded } from '../../read/nothing.ts';
import { snapAdvice } from '../../read/snap-length.ts';
import { counted, formatCount, formatDuration } from '../../units.ts';
import type { CaptureSummary, Connection, Finding, Severity } from '../analysis.ts';
import type { Clock } from '../record/clock.ts';
import type { FindingKind } from './kinds.ts';

export function captureFindings(
  connections: readonly Connection[],
  summary: CaptureSummary,
  tooMany: number,
): Finding[] {
  const found: Finding[] = [];
  const add = (kind: FindingKind, severity: Severity, count: number, text: string, hint: string) => {
    const { duration: end } = summary;
    found.push({
      kind,
      severity,
      connection: undefined,
      from: undefined,
      subject: undefined,
      statement: text,
      text,
      hint,
      start: 0,
      end,
      frames: [],
      frameCount: count,
    });
  };
  if (summary.damage !== undefined) {
    add(
      'damaged-file',
      'error',
      1,
      `Reading stopped before the end of the file: ${summary.damage}; only the packets before that point were analysed`,
      'Was the capture still being written, or the copy cut short?',
    );
  }
  const nothing = nothingDecoded(summary);
  if (nothing !== undefined && summary.damage === undefined)
    add('nothing-decoded', 'error', summary.frames, nothing.text, nothing.hint);
  const damaged = Object.entries(summary.damaged);
  if (damaged.length > 0) {
    const count = damaged.reduce((sum, [, n]) => sum + n, 0);
    // The others are refused where the port, or the EtherType, is known.
    const isRoce = damaged.every(([reason]) => reason !== 'truncated' && reason !== 'malformed');
    add(
      'damaged-packets',
      'warning',
      count,
      `${counted(count, isRoce ? 'RoCE packet' : 'frame')} could not be read: ${damaged.map(([reason, n]) => `${n} ${reason}`).join(', ')}`,
      summary.damaged.fragment === undefined
        ? `See them with roce dump; ${snapAdvice(summary.neededSnapLength)}.`
        : 'See them with roce dump. Fragments are not put together: lower the path MTU of the queue pairs below the MTU of the network.',
    );
  }
  if (summary.cutHeaders > 0) {
    add(
      'cut-headers',
      'note',
      summary.cutHeaders,
      `${counted(summary.cutHeaders, 'packet')} cut inside their headers: lengths of their READs, and whether they are ACKs or NAKs, are not known`,
      `Capture again: ${snapAdvice(summary.neededSnapLength)}.`,
    );
  }
  const dropped = summary.droppedByCapture ?? 0;
  if (dropped > 0) {
    add(
      'capture-drops',
      'warning',
      dropped,
      `The capturing system dropped ${counted(dropped, 'packet')}: packets that look lost may only be missing in the capture`,
      `Capture with larger buffers (tcpdump -B), or fewer bytes of each packet: ${snapAdvice(summary.neededSnapLength)}.`,
    );
  }
  if (tooMany > 0) {
    add(
      'too-many-connections',
      'warning',
      tooMany,
      `${counted(tooMany, 'packet')} of connections past the first ${formatCount(connections.length)}, which are not followed`,
      'Analyze a part of the capture: roce export with --address, --qp, --from and --to.',
    );
  }
  const oneWay = connections.filter(
    ({ aToB, bToA, transport }) =>
      (aToB.packets === 0 || bToA.packets === 0) && (transport === 'RC' || transport === 'XRC'),
  );
  if (oneWay.length > 0) {
    add(
      'one-direction',
      'note',
      oneWay.length,
      `${counted(oneWay.length, 'connection')} with one direction only (${oneWay
        .slice(0, 5)
        .map(({ id }) => `#${id}`)
        .join(
          ', ',
        )}${oneWay.length > 5 ? ' …' : ''}): the capture does not show whether messages were answered and why packets were retransmitted`,
      'Mirror both directions of the port. If both are mirrored, no answer was sent: look at the peer.',
    );
  }
  return found;
}

/** Times of frames that go back: what rests on times is then no evidence. */
export function clockFindings({ stepsBack, longestStep }: Clock): Finding[] {
  if (stepsBack === 0) return [];
  const text = `${counted(stepsBack, 'timestamp')} ${stepsBack === 1 ? 'goes' : 'go'} back, by up to ${formatDuration(longestStep)}: durations and causes after that are likely at best`;
  return [
    {
      kind: 'clock-back',
      severity: 'warning',
      connection: undefined,
      from: undefined,
      subject: undefined,
      statement: text,
      text,
      hint: 'Frames that are out of order in the file can be sorted (reordercap, or mergecap without -a); a clock that was set during the capture cannot be corrected.',
      start: 0,
      end: 0,
      frames: [],
      frameCount: stepsBack,
    },
  ];
}
