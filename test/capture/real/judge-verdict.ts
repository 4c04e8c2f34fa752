/**
 * Judges the verdict on a capture by the truth of its run: the fates of the packets that requesters retransmitted, as far as
 * this tap shows them. A tap near the sender shows loss behind it as it shows damage and delay there.
 */
import type { Verdict } from '@node-roce/capture';
import type { Frames, Tap, Truth, TruthEvent } from './truth-file.ts';

type Grade = 'right' | 'partly' | 'wrong';

/** The judgement on one verdict, with the truth in words. */
export interface VerdictJudgement {
  grade: Grade;
  truth: string;
}

/** Kinds of verdicts that state the fate of one event. */
function kindsOf({ cause, lost, side }: TruthEvent, tap: Tap, text: string, hasLosses: boolean): string[] {
  if (cause === 'rnr') return ['rnr'];
  const { what, fate, frame } = lost;
  // It came to this tap over the link, or left from here.
  const isFar = frame !== undefined && frame !== null ? frame.from !== tap : side !== tap;
  if (fate === 'damaged') return isFar ? ['damaged-on-the-way'] : naming('damaged', text);
  if (fate === 'late' || fate === 'reordered')
    return isFar ? ['reordering'] : [...naming('reordered', text), 'reordering'];
  if (fate === 'lost' || what === 'receiver') return ['packets-lost'];
  // Nothing was lost, or a packet behind the one that the requester began with.
  const arrived = ['spurious-retransmission', 'host-stood-still', 'slow-responder'];
  return hasLosses || text.includes('delayed') ? [...arrived, 'packets-lost', 'reordering'] : arrived;
}

/** Behind the tap losses are right if the text names this fate, too. */
const naming = (fate: string, text: string): string[] => (text.includes(fate) ? ['packets-lost'] : []);

const nameOf = ({ cause, lost: { what, fate } }: TruthEvent): string =>
  cause === 'rnr' ? 'not ready' : `${what}${fate === undefined ? '' : ` ${fate}`}`;

export function judgeVerdict(verdict: Verdict, truth: Truth, tap: Tap): VerdictJudgement {
  const visible = truth.events.filter(({ frames }) => frames.some((packet) => packet[tap].length > 0));
  if (visible.length > 0) return judgeEvents(verdict, truth, tap, visible);
  const [kinds, words] = quietTruth(truth, tap);
  const grade = kinds.includes(verdict.kind) ? 'right' : isVague(verdict) ? 'partly' : 'wrong';
  return { grade, truth: words };
}

function judgeEvents(
  verdict: Verdict,
  truth: Truth,
  tap: Tap,
  events: readonly TruthEvent[],
): VerdictJudgement {
  const hasLosses = truth.lost.length + truth.damaged.length + truth.late.length > 0;
  const counts = new Map<string, number>();
  const names = new Map<string, number>();
  for (const event of events) {
    for (const kind of kindsOf(event, tap, verdict.text, hasLosses))
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
    names.set(nameOf(event), (names.get(nameOf(event)) ?? 0) + 1);
  }
  const words = [...names].map(([name, count]) => `${count} ${name}`).join(', ');
  // The last requests of a run whose peer vanished, or was killed, fail.
  const isCut = truth.faults.some((fault) => fault.includes('cut')) || truth.exit !== 0;
  const ends = isCut ? ['retries-exceeded', 'requester-stopped'] : [];
  const most = Math.max(...counts.values());
  const count = counts.get(verdict.kind) ?? 0;
  if (ends.includes(verdict.kind) || 2 * count >= most) return { grade: 'right', truth: words };
  return { grade: count > 0 || isVague(verdict) ? 'partly' : 'wrong', truth: words };
}

const isVague = ({ certainty, kind }: Verdict): boolean =>
  certainty === 'not-known' || kind === 'slow-responder' || kind === 'healthy';

/** The kinds that are right where nobody retransmitted, as far as this tap shows. */
function quietTruth(truth: Truth, tap: Tap): [kinds: string[], words: string] {
  const far = truth.lost.filter((packet) => packet.from !== tap);
  const here = (packets: readonly Frames[]) => packets.filter((packet) => packet[tap].length > 0);
  if (here(truth.fatalNaks).length > 0) return [['nak-remote-access-error', 'nak-invalid-request'], 'a NAK'];
  if (here(truth.pfc).length > 0) return [['pause'], `${here(truth.pfc).length} pause frames`];
  // Duplicates behind the tap may show themselves by ACKs that come twice.
  const isDoubled = truth.duplicated.some((packet) => packet[tap].length > 1);
  if (isDoubled) return [['repeated-frames'], `${truth.duplicated.length} packets duplicated`];
  if (here(truth.marked).some(({ from }) => from !== tap))
    return [['ecn-marked'], `${here(truth.marked).length} packets marked`];
  if (here(truth.cnps).length > 0)
    return [['cnp'], `packets marked behind this tap, ${here(truth.cnps).length} CNPs`];
  if (truth.duplicated.length > 0)
    return [['ghost-acks', 'healthy'], `${truth.duplicated.length} packets duplicated behind this tap`];
  if (truth.cm.length > 0 && truth.faults.some((fault) => fault.includes(' cm ')))
    return [
      ['cm-retries', 'cm-unanswered', 'cm-rejected', 'healthy', 'idle-like-timeout'],
      'messages of the connection manager lost',
    ];
  if (truth.cm.some(({ attribute }) => attribute === 0x12)) return [['cm-rejected'], 'a REJ'];
  const isUc = truth.client.includes('uc_') || truth.client.includes('-c UC');
  if (isUc && far.length > 0) return [['uc-loss'], `${far.length} packets of UC lost`];
  return [['healthy'], 'nothing that this tap shows'];
}
