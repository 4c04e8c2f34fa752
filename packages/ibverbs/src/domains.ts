/** Thread domains, and parent domains, which add one to a protection domain. */
import { invalid, RoceError } from '@node-roce/transport';
import { checkMask } from './arguments.ts';
import {
  IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
  IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
} from './constants.ts';
import { pointer, status } from './errno.ts';
import { checkKind, given, ibv_context, ibv_pd } from './objects.ts';

/** `struct ibv_td`: a promise that what is made with it is used by one thread at a time. */
export class ibv_td {
  readonly context: ibv_context;

  constructor(context: ibv_context) {
    this.context = context;
  }
}

/** `struct ibv_td_init_attr`. */
export interface ibv_td_init_attr {
  /** 0. */
  comp_mask?: number;
}

/** `struct ibv_parent_domain_init_attr`. */
export interface ibv_parent_domain_init_attr {
  pd: ibv_pd;
  td?: ibv_td | null;
  /** IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT. */
  comp_mask?: number;
  pd_context?: unknown;
}

/** Parent domains that use a protection domain or a thread domain. */
const users = new WeakMap<ibv_pd | ibv_td, number>();

const use = (domain: ibv_pd | ibv_td, by: 1 | -1): unknown =>
  users.set(domain, (users.get(domain) ?? 0) + by);

/** A protection domain with a thread domain: stands for the protection domain in every call. */
export class ibv_parent_domain extends ibv_pd {
  readonly td: ibv_td | null;
  readonly pd_context: unknown;
  readonly #base: ibv_pd;
  readonly #objects = new Set<object>();
  #isGone = false;

  constructor(base: ibv_pd, td: ibv_td | null, pd_context: unknown) {
    super(base.context, base.verbs, base.regions);
    this.#base = base;
    this.td = td;
    this.pd_context = pd_context;
    use(base, 1);
    if (td) use(td, 1);
  }

  /** @internal */
  override made(object: object): void {
    this.#objects.add(object);
  }

  /** @internal */
  override gone(object: object): void {
    this.#objects.delete(object);
  }

  /** Gives back what it holds; the protection domain stays. @internal */
  dealloc(): void {
    if (this.#isGone) return;
    if (this.#objects.size > 0) throw busy(`${this.#objects.size} objects were made with the parent domain`);
    this.#isGone = true;
    use(this.#base, -1);
    if (this.td) use(this.td, -1);
  }
}

function busy(message: string): RoceError {
  return new RoceError('ERR_ROCE_BUSY', message, { errno: 'EBUSY' });
}

/** Throws EBUSY while parent domains use it. */
export function checkUnused(domain: ibv_pd | ibv_td): void {
  const count = users.get(domain) ?? 0;
  if (count > 0) throw busy(`${count} parent domains use it`);
}

/**
 * ibv_alloc_td(3). A thread posts to a queue alone in any case, and no lock guards it: the domain changes nothing of what is made
 * with it.
 */
export function ibv_alloc_td(context: ibv_context, init_attr: ibv_td_init_attr): Promise<ibv_td | null> {
  return pointer(() => {
    checkKind('context', context, ibv_context);
    const { comp_mask = 0 } = given('init_attr', init_attr);
    checkMask('init_attr.comp_mask', comp_mask);
    return new ibv_td(context);
  });
}

/** ibv_dealloc_td(3): EBUSY while parent domains use it. */
export function ibv_dealloc_td(td: ibv_td): Promise<number> {
  return status(() => {
    checkKind('td', td, ibv_td);
    checkUnused(td);
  });
}

/**
 * ibv_alloc_parent_domain(3): can be given wherever a protection domain can; `ibv_dealloc_pd` takes it back, with EBUSY while what
 * was made with it is there. EOPNOTSUPP for allocators: queues are in the engine's memory.
 */
export function ibv_alloc_parent_domain(
  context: ibv_context,
  attr: ibv_parent_domain_init_attr,
): Promise<ibv_parent_domain | null> {
  return pointer(() => {
    checkKind('context', context, ibv_context);
    const { pd, td = null, comp_mask = 0, pd_context } = given('attr', attr);
    checkKind('attr.pd', pd, ibv_pd);
    if (td !== null) checkKind('attr.td', td, ibv_td);
    if ((comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) !== 0) {
      throw new RoceError(
        'ERR_ROCE_NOT_SUPPORTED',
        'attr.comp_mask: queues are in the memory of the engine',
        {
          errno: 'EOPNOTSUPP',
          attribute: 'attr.comp_mask',
          expected: 'IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT',
        },
      );
    }
    const known = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    checkMask('attr.comp_mask', comp_mask, known, 'IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT');
    if (pd.context !== context || (td !== null && td.context !== context))
      throw invalid(
        pd.context === context ? 'attr.td' : 'attr.pd',
        'of another context',
        'one of this context',
      );
    return new ibv_parent_domain(pd, td, pd_context);
  });
}
