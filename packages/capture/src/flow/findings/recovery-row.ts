/** The row that a rule has for recoveries of one reason, and the words that several rows share. */
import { formatPsn } from '../../units.ts';
import type { Certainty, ChainEvent, EpisodeReason } from '../facts.ts';
import type { OpenRecovery } from '../record/recoveries.ts';
import type { Direction } from '../track/direction.ts';
import type { Episode } from '../track/episodes.ts';
import { event } from './chain.ts';

/** The recoveries of one end. */
interface Part {
  direction: Direction;
  requester: string;
  responder: string;
  recoveries: readonly OpenRecovery[];
}

/** So many recoveries of those that are kept: the first ones of all that happened. */
export interface Share {
  count: number;
  kept: number;
  all: number;
}

/** Recoveries with one reason, the episode that shows it best, and what texts about them need. */
export interface Telling {
  /** One, or two if both ends went back. */
  parts: readonly Part[];
  /** Of the episode that is shown. */
  direction: Direction;
  reason: EpisodeReason;
  recoveries: OpenRecovery[];
  shown: Episode;
  /** Of so many the reason is certain. */
  certain: number;
  requester: string;
  responder: string;
  /** Nanoseconds since the capture's begin. */
  captureEnd: number;
  /** In a verdict, of all recoveries of the connection; in a finding, of one end's. */
  share: Share;
  /** `; nothing was lost`, where the group has all recoveries of the connection. */
  nothingLost: string;
}

/** The verdict of a reason in words, and its proof. */
export interface RecoveryRow<Kind extends string, Folded extends string> {
  reason: EpisodeReason;
  kind: Kind;
  /** One text for the recoveries of both ends: the network is at fault. */
  isOfBoth?: boolean;
  /** The address at fault, or the network. */
  culprit: (telling: Telling) => string;
  /** Unless given: certain, if each of the recoveries that the text counts is. */
  certainty?: (telling: Telling) => Certainty;
  text: (telling: Telling) => string;
  /** In any order, without those that the capture has no frame of. */
  chain: (telling: Telling) => ChainEvent[];
  /** The kind in words, where its title says more than is known. */
  title?: (telling: Telling) => string | undefined;
  /** Advice, where no finding has it. */
  hint?: string;
  /** Kinds of findings that it explains. */
  explains: readonly Folded[];
  /** The finding, where no other part makes it. */
  finding?: (telling: Telling) => { statement: string; hint: string; frames?: readonly number[] };
}

/** Kinds that every cause of recoveries explains. */
export const RECOVERED = ['retransmissions', 'stalls'] as const;

export const network = (): string => 'network';
export const theResponder = ({ responder }: Telling): string => responder;

export const psnOf = ({ psn }: Pick<Episode, 'psn'>): string => `PSN ${formatPsn(psn & 0xff_ffff)}`;

/** `all 4 recoveries`, `3 of 5 recoveries`; where not all of them are kept, `3 of the first 200 recoveries`. */
export function textOfShare({ count, kept, all }: Share): string {
  if (kept < all) return `${count === kept ? 'all' : count} of the first ${kept} recoveries`;
  if (kept === 1) return '1 recovery';
  if (kept === 2 && count === 2) return 'both recoveries';
  return `${count === kept ? 'all' : `${count} of`} ${kept} recoveries`;
}

/** `, 1 of them for certain`: what a finding that is likely as a whole states of its parts. */
export const ofThemCertain = (certain: number, { recoveries: { length } }: Telling): string =>
  certain === 0 || certain === length ? '' : `, ${certain} of them for certain`;

/** The senders of the missing packets. @param tells which recoveries show the sender */
export const sendersOf = ({ parts }: Telling, tells: (recovery: OpenRecovery) => boolean): Set<string> =>
  new Set(
    parts.flatMap(({ recoveries, requester, responder }) =>
      recoveries.filter(tells).map(({ missing }) => (missing === 'response' ? responder : requester)),
    ),
  );

/**
 * `path from 10.0.0.1 to the capture point`: what the capture shows of the packets happened before it.
 * @param isShown each of them is in the capture: damaged, or late
 * @param tells which recoveries show the sender
 */
export function pathOf(
  telling: Telling,
  isShown: boolean,
  tells = (_: OpenRecovery): boolean => true,
): string {
  const senders = sendersOf(telling, tells);
  const [sender] = senders;
  const [{ requester, responder }] = telling.parts;
  if (senders.size !== 1) return `path between ${requester} and ${responder}`;
  if (isShown) return `path from ${sender} to the capture point`;
  return `path from ${sender} to ${sender === requester ? responder : requester}`;
}

/** The first transmission: how a chain begins. */
export const sent = ({ shown, requester }: Telling): ChainEvent[] =>
  event(shown.sentFrame, `${requester} sends ${psnOf(shown)}`);

/** The NAK, the retransmission and its answer: how a chain ends. */
export function closed({ shown, requester, responder }: Telling): ChainEvent[] {
  const { cause, evidenceFrame, frame, answerFrame } = shown;
  const asked =
    cause === 'sequence-nak'
      ? `${responder} asks for ${psnOf(shown)} again (sequence NAK)`
      : cause === 'implied-nak'
        ? `a later response of ${responder} comes without the one with ${psnOf(shown)}`
        : undefined;
  const timer = cause === 'timeout' ? ' (ACK timeout)' : '';
  const again =
    cause === 'implied-nak'
      ? `${requester} asks for the response with ${psnOf(shown)} again`
      : `${requester} sends ${psnOf(shown)} again${timer}`;
  return [
    ...(asked === undefined ? [] : event(evidenceFrame, asked)),
    ...event(frame, again),
    ...event(answerFrame, `${responder} answers`),
  ];
}
