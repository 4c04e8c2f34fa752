/** Lists of known deviations: what a device is known to do instead, and the news compared with it. */
import type { Result, Verdict } from './run.ts';

/** A deviation by its rule: the text that the tester prints for it, and why it is accepted. */
export interface KnownDeviation {
  is: string;
  because: string;
  /** It depends on timing: a pass is not news either. */
  sometimes?: boolean;
}

export interface KnownList {
  /** Shown in reports. */
  device: string;
  deviations: Readonly<Record<string, KnownDeviation>>;
}

/** The text of a deviation: the same in each run. */
export const signature = ({ why }: Pick<Result, 'why'>): string => why.join(' | ');

/**
 * Compares results with a list: a deviation becomes `known`, or `changed` where its text is another; a rule on the list that
 * passes becomes `mended`.
 */
export function compare(results: readonly Result[], { deviations }: KnownList): Result[] {
  return results.map((result) => {
    const known = deviations[result.rule.id];
    if (known === undefined) return result;
    if (result.verdict === 'pass') return known.sometimes ? result : { ...result, verdict: 'mended' };
    if (result.verdict !== 'deviation') return result;
    return { ...result, verdict: signature(result) === known.is ? 'known' : 'changed' };
  });
}

/** A list of the deviations in results; `because` is left to the reader. */
export function learn(results: readonly Result[], device: string): KnownList {
  const found = results.filter(({ verdict }) => verdict === 'deviation');
  const entries = found.map((result) => [result.rule.id, { is: signature(result), because: '' }] as const);
  return { device, deviations: Object.fromEntries(entries) };
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
    if (typeof entry?.is !== 'string') throw new TypeError(`${id}: expected { "is": TEXT, "because": TEXT }`);
  }
  return list as KnownList;
}

const NEWS: ReadonlySet<Verdict> = new Set(['deviation', 'changed', 'mended', 'unsteady']);

/** Whether a result is one that nobody knew of. A deviation from a rule that is a `should` counts with `strict` only. */
export function isNews({ rule, verdict }: Result, strict = false): boolean {
  if (rule.should && verdict === 'deviation') return strict;
  return NEWS.has(verdict);
}
