/** A rule: the data that describes it, and the code that plays it. */
import type { Case } from './case.ts';
import type { Need } from './needs.ts';

/** The description of a rule. */
export interface RuleSpec {
  /** The requirement, in one line. */
  title: string;
  /** Sections of IBTA vol 1, as drivers and reviews quote them; `RFC …` where it is not IBTA's. */
  section: string;
  needs: readonly Need[];
  /** Why the requirement matters. */
  text: string;
  /** The reading is disputed, or the harm is small: a deviation counts with `--strict` only. */
  should?: boolean;
  /** One of the rules to play first on a young stack. */
  first?: boolean;
  /** May stop a device that is not robust. */
  hostile?: boolean;
  /** Takes many seconds on real sockets. */
  slow?: boolean;
}

/** A rule in reports. Ids are never used for anything else again. */
export interface NamedRule extends RuleSpec {
  readonly id: string;
}

/** A rule that can be played. */
export interface Rule extends NamedRule {
  play(t: Case): Promise<void>;
}

/** Makes a rule. `play` notes what is wrong with `t.want` and what it expects of a session. */
export function rule(id: string, spec: RuleSpec, play: Rule['play']): Rule {
  return { id, ...spec, play };
}
