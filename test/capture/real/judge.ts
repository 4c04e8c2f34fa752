/**
 * Holds the statements of the analysis to the truth of a recorded run (truth.mjs). It uses the analysis as any program does: verdicts
 * packet by packet, findings and counts at the end.
 */
import { type Analysis, analyzeCapture, type Connection } from '@node-roce/capture/node';
import { type Evidence, FINDING_CHECKS, judgeStalls } from './judge-findings.ts';
// @ts-expect-error: plain JavaScript
import { parseRoce } from './pcap.mjs';
import type { Frames, Tap, Truth, TruthEvent } from './truth-file.ts';

/** A statement of the analysis about a packet. */
interface Statement {
  cause: string | undefined;
  grade: string | undefined;
  evidence: number;
  repeated: boolean;
}

export interface Statements {
  byFrame: Map<number, Statement>;
  analysis: Analysis;
}

/** Runs the analysis over one capture. */
export async function statementsOf(path: string): Promise<Statements> {
  const byFrame = new Map<number, Statement>();
  const analysis = await analyzeCapture(path, {
    onPacket: ({ frame }, { retransmission: cause, grade, evidence, repeatedFrame: repeated }) => {
      if (cause !== undefined || repeated) byFrame.set(frame, { cause, grade, evidence, repeated });
    },
  });
  return { byFrame, analysis };
}

/** Counts of events or packets by the verdict of the analysis. */
export interface Shares {
  certain: number;
  likely: number;
  likelyWrong: number;
  notShown: number;
  /** Retransmissions that were not called so. */
  missed: number;
}

const noShares = (): Shares => ({ certain: 0, likely: 0, likelyWrong: 0, notShown: 0, missed: 0 });

export interface Judgement {
  name: string;
  tap: Tap;
  /** Goings back whose requester is on this tap's side, and on the other. */
  near: Shares;
  far: Shares;
  /** Causes that are wrong and were not called a guess, each with its frame and the truth. */
  falseCauses: string[];
  /** All other statements that are false. */
  falsehoods: string[];
  /** Causes at grade likely that were not the one. */
  wrongGuesses: string[];
  /** Kinds of findings that this judge knows no truth for. */
  unjudged: string[];
}

const said = (cause: string, grade: string | undefined) =>
  grade === undefined ? cause : `${cause} (${grade})`;

/** Judges the analysis of the capture at `tap`. */
export function judge(
  truth: Truth,
  tap: Tap,
  { byFrame, analysis }: Statements,
  evidence: Evidence,
): Judgement {
  const result: Judgement = {
    name: truth.name,
    tap,
    near: noShares(),
    far: noShares(),
    falseCauses: [],
    falsehoods: [],
    wrongGuesses: [],
    unjudged: [],
  };
  const retransmitted = new Map<number, TruthEvent>();
  for (const event of truth.events) {
    for (const frames of event.frames) {
      const [frame] = frames[tap];
      if (frame !== undefined) retransmitted.set(frame, event);
    }
    judgeEvent(event, tap, byFrame, result);
  }
  judgePackets(truth, tap, byFrame, retransmitted, result);
  judgePlaces(tap, analysis.connections, retransmitted, result);
  judgeCounts(truth, tap, analysis.connections, evidence, result);
  judgeFindings(truth, tap, analysis, evidence, result);
  result.falsehoods.push(...judgeStalls(analysis, truth, tap, evidence));
  return result;
}

/** Judges one go-back-N by the verdict on its first packet at this tap. */
function judgeEvent(
  event: TruthEvent,
  tap: Tap,
  byFrame: ReadonlyMap<number, Statement>,
  { near, far, falseCauses, falsehoods, wrongGuesses }: Judgement,
): void {
  const first = event.frames.map((frames) => frames[tap][0]).find((frame) => frame !== undefined);
  if (first === undefined) return;
  const shares = event.side === tap ? near : far;
  const statement = byFrame.get(first);
  const truth = `truth: ${event.possible.join(' or ')}, ${event.lost.what}${event.lost.fate ? ` ${event.lost.fate}` : ''}`;
  if (statement?.cause === undefined) {
    shares.missed++;
    return;
  }
  const { cause, grade, evidence } = statement;
  if (cause === 'unknown' || grade === 'not-shown') {
    shares.notShown++;
    return;
  }
  const isRight = event.possible.includes(cause) || event.cause === 'unknown';
  if (grade === 'likely') {
    if (isRight) shares.likely++;
    else {
      shares.likelyWrong++;
      wrongGuesses.push(`frame ${first}: ${said(cause, grade)}; ${truth}`);
    }
    return;
  }
  shares.certain++;
  if (!isRight) falseCauses.push(`frame ${first}: ${said(cause, grade)}; ${truth}`);
  else if (cause === event.cause && evidence > 0 && event.trigger !== null) {
    // The NAK, or the answer that came in place of the missing one, as this tap numbers it.
    const shown = event.trigger[tap];
    if (cause === 'sequence-nak' && !shown.includes(evidence))
      falsehoods.push(
        `frame ${first}: evidence in frame ${evidence}; truth: the NAK is frame ${shown.join(', ')}`,
      );
  }
}

/** Judges each packet: it must not be called a retransmission or a copy that it is not, nor have a wrong cause. */
function judgePackets(
  truth: Truth,
  tap: Tap,
  byFrame: ReadonlyMap<number, Statement>,
  retransmitted: ReadonlyMap<number, TruthEvent>,
  { falseCauses, falsehoods }: Judgement,
): void {
  const copies = new Set(truth.duplicated.flatMap((frames) => frames[tap].slice(1)));
  // Packets before the trace began, and those of a queue pair that it did not follow, have no truth.
  for (const [frame, { cause, grade, repeated }] of byFrame) {
    const event = retransmitted.get(frame);
    if (repeated && !copies.has(frame)) falsehoods.push(`frame ${frame}: a copy; truth: not repeated`);
    if (cause === undefined) continue;
    if (copies.has(frame))
      falsehoods.push(`frame ${frame}: retransmission, ${said(cause, grade)}; truth: the network's copy`);
    else if (event === undefined)
      falsehoods.push(`frame ${frame}: retransmission, ${said(cause, grade)}; truth: first transmission`);
    else if (
      grade === 'certain' &&
      !event.possible.includes(cause) &&
      event.cause !== 'unknown' &&
      event.frames[0][tap][0] !== frame
    )
      falseCauses.push(`frame ${frame}: ${said(cause, grade)}; truth: ${event.possible.join(' or ')}`);
  }
}

/** Where packets were lost: all of it happens between the taps, or at the responder. */
function judgePlaces(
  tap: Tap,
  connections: readonly Connection[],
  retransmitted: ReadonlyMap<number, TruthEvent>,
  { falsehoods }: Judgement,
): void {
  for (const { cause, frame, missing, side } of connections.flatMap(({ recoveries }) => recoveries)) {
    const event = retransmitted.get(frame);
    // A wrong cause is judged as such.
    if (event === undefined || side === 'unknown' || !event.possible.includes(cause)) continue;
    const { what, fate } = event.lost;
    const isOnLink = fate !== undefined && fate !== 'passed';
    const far = event.side !== tap;
    // Far from the requester, what the link did to a packet was before the tap; near to it, behind.
    const wrong = far ? 'responder' : 'requester';
    if (isOnLink && side === wrong)
      falsehoods.push(
        `frame ${frame}: ${cause}, ${missing} lost on the ${side}'s side; truth: ${what} ${fate}`,
      );
  }
}

/** CNPs of connections: the link sent some to queue pairs of which no other packet was captured. */
function cnpsOf(truth: Truth, tap: Tap, frames: Evidence['frames']): number[] {
  const keyOf = (bytes: Buffer) => `${bytes.toString('hex', 0, 6)} ${parseRoce(bytes)?.qp}`;
  const cnps = new Set(at(truth.cnps, tap));
  const used = new Set(frames.flatMap(({ number, bytes }) => (cnps.has(number) ? [] : [keyOf(bytes)])));
  return [...cnps].filter((frame) => used.has(keyOf(frames[frame - 1].bytes)));
}

function judgeCounts(
  truth: Truth,
  tap: Tap,
  connections: readonly Connection[],
  { frames }: Evidence,
  { falsehoods }: Judgement,
): void {
  const counts = connections.flatMap(({ aToB, bToA }) => [aToB, bToA]);
  const total = (of: (count: (typeof counts)[number]) => number) =>
    counts.reduce((sum, count) => sum + of(count), 0);
  const expect = (what: string, is: number, truly: number) => {
    if (is !== truly) falsehoods.push(`${is} ${what}; truth: ${truly}`);
  };
  expect(
    'packets with a wrong ICRC',
    total(({ icrcBad }) => icrcBad),
    changed(truth.damaged, tap).length,
  );
  // A damaged NAK may be counted or not.
  const damaged = new Set(changed(truth.damaged, tap));
  const expectNaks = (what: string, packets: readonly Frames[], is: number) => {
    const frames = at(packets, tap);
    const least = frames.filter((frame) => !damaged.has(frame)).length;
    expect(what, is, Math.min(Math.max(is, least), frames.length));
  };
  expectNaks(
    'RNR NAKs',
    truth.rnrNaks,
    total(({ rnrNaks }) => rnrNaks),
  );
  expectNaks(
    'sequence NAKs',
    truth.sequenceNaks,
    total(({ naks }) => naks['psn-sequence-error'] ?? 0),
  );
  expect(
    'CNPs',
    total(({ cnps }) => cnps),
    cnpsOf(truth, tap, frames).length,
  );
  // A go-back-N of which no packet passed the tap, or only such as it had not seen before, does not show there.
  const goBacks = total((count) => count.goBacks);
  const isSeen = ({ frames }: TruthEvent) => at(frames, tap).length > 0;
  const visible = truth.events.filter(isSeen).length;
  const isNear = truth.events.every(({ side }) => side === tap);
  if (goBacks > visible || (isNear && goBacks < visible - 1))
    falsehoods.push(`${goBacks} go-back-N events; truth: ${visible}`);
  const near = truth.events.filter(({ side }) => side === tap).flatMap(({ frames }) => frames);
  if (isNear)
    expect(
      'packets retransmitted',
      total(({ retransmitted }) => retransmitted),
      at(near, tap).length,
    );
}

/** Frames of these packets at a tap. */
const at = (packets: readonly Frames[], tap: Tap): number[] => packets.flatMap((frames) => frames[tap]);

/** The same of packets that were changed on their way: where they arrive. */
const changed = (packets: readonly Frames[], tap: Tap): number[] =>
  at(
    packets.filter(({ from }) => from !== tap),
    tap,
  );

type Check = (truth: Truth, tap: Tap, frameCount: number) => string | undefined;

const never =
  (why: string): Check =>
  () =>
    why;
const counted =
  (of: (truth: Truth) => readonly Frames[], what: string): Check =>
  (truth, tap, frameCount) => {
    const frames = at(of(truth), tap).length;
    return frameCount === frames ? undefined : `${frames} ${what}`;
  };

/** Truth by kind of finding: undefined where the finding is right. */
const CHECKS: Record<string, Check> = {
  'damaged-file': never('the file is whole'),
  'capture-drops': never('the taps drop nothing'),
  'capture-loss': never('the taps see every packet'),
  'queue-pairs-reused': never('no two connections have the same numbers'),
  'one-direction': never('the taps see both directions'),
  rnr: counted(({ rnrNaks }) => rnrNaks, 'RNR NAKs'),
  'icrc-bad': (truth, tap, count) => {
    const damaged = changed(truth.damaged, tap).length;
    return count === damaged ? undefined : `${damaged} damaged`;
  },
  'repeated-frames': (truth, tap, count) => {
    const copies = truth.duplicated.reduce((sum, frames) => sum + Math.max(0, frames[tap].length - 1), 0);
    return count <= copies ? undefined : `${copies} copies`;
  },
  'retries-exceeded': (truth) =>
    truth.exit !== 0 || truth.faults.some((fault) => fault.includes(' cut '))
      ? undefined
      : 'the program ended well',
  'rnr-retries-exceeded': (truth) => (truth.exit === 0 ? 'the program ended well' : undefined),
  'uc-loss': (truth, tap) =>
    truth.lost.some((frames) => frames[tap].length === 0) ? undefined : 'this tap is before the loss',
  'ecn-marked': (truth, tap) =>
    changed(truth.marked, tap).length > 0 ? undefined : 'nothing is marked here',
  cnp: (truth, tap) => (at(truth.cnps, tap).length > 0 ? undefined : 'no CNPs'),
  retransmissions: (truth) => (truth.events.length > 0 ? undefined : 'nothing was retransmitted'),
};
for (const code of [
  'invalid-request',
  'remote-access-error',
  'remote-operational-error',
  'invalid-rd-request',
  'reserved-nak',
])
  CHECKS[`nak-${code}`] = counted(({ fatalNaks }) => fatalNaks, 'such NAKs');

function judgeFindings(
  truth: Truth,
  tap: Tap,
  { findings }: Analysis,
  evidence: Evidence,
  { falsehoods, unjudged }: Judgement,
): void {
  for (const finding of findings) {
    const truly = FINDING_CHECKS[finding.kind]?.(finding, truth, tap, evidence);
    if (truly !== undefined) falsehoods.push(`finding ${finding.kind}; truth: ${truly}`);
  }
  const counts = new Map<string, { frameCount: number; text: string }>();
  for (const { kind, frameCount, text } of findings) {
    const known = counts.get(kind);
    counts.set(kind, { frameCount: (known?.frameCount ?? 0) + frameCount, text });
  }
  for (const [kind, { frameCount, text }] of counts) {
    // Stalls are judged one by one.
    if (kind in FINDING_CHECKS || kind === 'stalls') continue;
    const check = CHECKS[kind];
    if (check === undefined) unjudged.push(`${kind}: ${text}`);
    else {
      const truly = check(truth, tap, frameCount);
      if (truly !== undefined) falsehoods.push(`finding ${kind}: ${text}; truth: ${truly}`);
    }
  }
}
