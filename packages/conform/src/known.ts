/** Lists of known deviations: what a device is known to do instead, and the news compared with it. */
import type { Result, Verdict } from './run.ts';

/** A deviation by its rule: the text that the tester prints for it, and why it is accepted. */
export interface KnownDeviation {
  is: string;
  because: string;
  /** It depends on timing: a pass is not news either. */
  sometimes?: boolean;
  /** Of a passive rule: the rules in whose packets it was seen. */
  in?: readonly string[];
}

export interface KnownList {
  /** Shown in reports. */
  device: string;
  /** Version and date of what the list was made with. */
  seen?: string;
  deviations: Readonly<Record<string, KnownDeviation>>;
  /** Rules that the device can not be tested for, each with the reason. */
  untestable?: Readonly<Record<string, string>>;
}

/** The text of a deviation: the same in each run. */
export const signature = ({ why, verdict }: Pick<Result, 'why' | 'verdict'>): string =>
  // In front there is how often it was seen.
  why.slice(verdict === 'unsteady' ? 1 : 0).join(' | ');

/** Whether a rule judges the packets that there are, which may give no occasion for the deviation that is known. */
const isPassive = ({ rule }: Result): boolean => rule.needs.includes('capture');

/** Whether a pass shows that a known deviation is gone: of a passive rule, if all rules in whose packets it was seen were played. */
function isMended(result: Result, known: KnownDeviation, all: readonly Result[]): boolean {
  if (known.sometimes) return false;
  if (!isPassive(result)) return true;
  const played = (id: string) =>
    all.some(({ rule, verdict }) => rule.id === id && verdict !== 'not testable' && verdict !== 'broken');
  return known.in !== undefined && known.in.length > 0 && known.in.every(played);
}

/** Whether a deviation is the known one; of a passive rule, fewer packets may show a part of it. */
function isKnown(result: Result, known: KnownDeviation): boolean {
  if (signature(result) === known.is) return true;
  const parts = known.is.split(' | ');
  return (
    isPassive(result) && result.verdict === 'deviation' && result.why.every((text) => parts.includes(text))
  );
}

/**
 * Compares results with a list: a deviation becomes `known`, or `changed` where its text is another; a rule on the list that
 * passes becomes `mended`. A passive rule does so only where `all` has the rules in whose packets its deviation was seen.
 * @param all all results of the run
 */
export function compare(
  results: readonly Result[],
  { deviations }: KnownList,
  all: readonly Result[] = results,
): Result[] {
  return results.map((result) => {
    const known = deviations[result.rule.id];
    if (known === undefined) return result;
    if (result.verdict === 'pass')
      return isMended(result, known, all) ? { ...result, verdict: 'mended' } : result;
    const isSame = isKnown(result, known);
    if (result.verdict === 'unsteady')
      return known.sometimes && isSame ? { ...result, verdict: 'known' } : result;
    if (result.verdict !== 'deviation') return result;
    return { ...result, verdict: isSame ? 'known' : 'changed' };
  });
}

/**
 * A list of the deviations in results; `because` is left to the reader. Entries of the list `before` stay, with their reasons:
 * deviations that are the same, that are seen sometimes, and those that the rules which were played can not show.
 */
export function learn(results: readonly Result[], device: string, before?: KnownList): KnownList {
  const deviations: Record<string, KnownDeviation> = { ...before?.deviations };
  for (const result of results) {
    const { id } = result.rule;
    const [old, is] = [deviations[id], signature(result)];
    if (result.verdict === 'pass' && old !== undefined && isMended(result, old, results))
      delete deviations[id];
    if (result.verdict === 'deviation' && (old === undefined || !isKnown(result, old)))
      deviations[id] = { is, because: '', ...(result.seenIn && { in: result.seenIn }) };
    if (result.verdict === 'unsteady' && old?.is !== is)
      deviations[id] = { is, because: '', sometimes: true };
  }
  return { ...before, device: before?.device ?? device, deviations };
}

/** The list in a file's text. @throws TypeError if it is no list */
export function parseKnownList(text: string): KnownList {
  const list = JSON.parse(text) as Partial<KnownList> | null;
  const entries = Object.entries(list?.deviations ?? {});
  if (typeof list?.device !== 'string' || typeof list.deviations !== 'object' || list.deviations === null) {
    throw new TypeError(
      'no list of known deviations: expected { "device": …, "deviations": { RULE: { "is": … } } }',
    );
  }
  for (const [id, entry] of entries) {
    const where = entry?.in ?? [];
    if (!Array.isArray(where) || !where.every((rule) => typeof rule === 'string'))
      throw new TypeError(`${id}: expected "in": [RULE, …]`);
    if (typeof entry?.is !== 'string') throw new TypeError(`${id}: expected { "is": TEXT, "because": TEXT }`);
  }
  return list as KnownList;
}

const NEWS: ReadonlySet<Verdict> = new Set(['deviation', 'changed', 'mended', 'unsteady']);

/**
 * Whether a result is one that nobody knew of. A deviation from a rule that is a `should` counts with `strict` only, each time or
 * sometimes; one on a list that is another now, or gone, counts always.
 */
export function isNews({ rule, verdict }: Result, strict = false): boolean {
  if (rule.should && (verdict === 'deviation' || verdict === 'unsteady')) return strict;
  return NEWS.has(verdict);
}
