/** The rules, in the order in which they are listed and played. */
import type { Rule } from '../rule.ts';
import { ackRules } from './acks.ts';
import { atomicRules } from './atomics.ts';
import { duplicateRules } from './duplicates.ts';
import { headerRules } from './headers.ts';
import { keyRules } from './keys.ts';
import { lengthRules } from './lengths.ts';
import { psnRules } from './psn.ts';
import { readRules } from './reads.ts';
import { requesterRules } from './requester.ts';
import { rnrRules } from './rnr.ts';
import { sequenceRules } from './sequence.ts';
import { stateRules } from './states.ts';
import { unreliableRules } from './unreliable.ts';

export const RULES: readonly Rule[] = [
  ...psnRules,
  ...duplicateRules,
  ...atomicRules,
  ...ackRules,
  ...rnrRules,
  ...sequenceRules,
  ...headerRules,
  ...lengthRules,
  ...keyRules,
  ...stateRules,
  ...requesterRules,
  ...readRules,
  ...unreliableRules,
];

/**
 * The rules whose ids begin with one of the selectors: `PSN` is an area, `PSN-01` a rule. All without a selector.
 * @throws RangeError for a selector that no id begins with
 */
export function rules(...selectors: readonly string[]): Rule[] {
  const wrong = selectors.find(
    (selector) => selector === '' || !RULES.some(({ id }) => id.startsWith(selector)),
  );
  if (wrong !== undefined)
    throw new RangeError(wrong === '' ? 'an empty name of a rule' : `no rule ${wrong}`);
  return RULES.filter(({ id }) => selectors.length === 0 || selectors.some((s) => id.startsWith(s)));
}
