/**
 * XRC domains, the numbers of their shared receive queues, and the shares of their target queue pairs: what the control path does
 * with them (ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3)).
 */
import type { CompletionQueue } from '../completion-queue.ts';
import type { XrcdInit } from '../control.ts';
import { invalid, RoceError } from '../errors.ts';
import { RecentNumbers } from '../recent-numbers.ts';
import type { SharedReceiveQueue } from '../srq.ts';
import { XrcDomain, type XrcSource } from './domain.ts';

/** One opening of a domain, and the objects made by it. */
class Opening {
  readonly domain: XrcDomain;
  #users = 0;

  constructor(domain: XrcDomain) {
    this.domain = domain;
  }

  /** SRQs and openings of target queue pairs made by it. */
  get users(): number {
    return this.#users;
  }

  use(by: 1 | -1): void {
    this.#users += by;
  }
}

/** One opening of a target queue pair. */
interface Share {
  readonly qpn: number;
  readonly opening: Opening;
}

/** An SRQ of a domain, and the opening that it was made by. */
interface Entry {
  readonly source: XrcSource;
  readonly opening: Opening;
}

/** SRQ number 0 is nobody's; 24 bits. */
const LAST_NUMBER = 0xff_ffff;

export interface XrcTableOptions {
  enabled: boolean;
  random: () => number;
  nextHandle: () => number;
}

/** Owns which SRQ a number stands for, and who has a domain or a target queue pair open. */
export class XrcTable {
  readonly #options: XrcTableOptions;
  readonly #openings = new Map<number, Opening>();
  /** Domains that have a name. */
  readonly #named = new Map<string, XrcDomain>();
  /** SRQs by handle, and the numbers in use, over all domains. */
  readonly #entries = new Map<number, Entry>();
  readonly #numbers = new Set<number>();
  readonly #recentNumbers = new RecentNumbers();
  readonly #shares = new Map<number, Share>();

  constructor(options: XrcTableOptions) {
    this.#options = options;
  }

  /** EOPNOTSUPP where the device was opened without `experimental: ['xrc']`. */
  check(attribute: string): void {
    if (this.#options.enabled) return;
    throw new RoceError(
      'ERR_ROCE_NOT_SUPPORTED',
      `${attribute}: XRC is experimental, and no other implementation has confirmed it`,
      { errno: 'EOPNOTSUPP', attribute, expected: "a device opened with experimental: ['xrc']" },
    );
  }

  // ------------------------------------------------------------------ domains

  /** ibv_open_xrcd(3): a domain of one's own, or with a name the one that all who open that name share. */
  open({ name, create = true, exclusive = false }: XrcdInit): number {
    this.check('xrcd');
    const found = name === undefined ? undefined : this.#named.get(name);
    // As ib_uverbs_open_xrcd has it.
    if (name !== undefined && !found && !create) {
      throw new RoceError('ERR_ROCE_NOT_FOUND', `name: no domain ${name} is open`, {
        errno: 'EAGAIN',
        attribute: 'name',
        expected: 'create: true',
      });
    }
    if (found && exclusive) throw invalid('exclusive', `the domain ${name} exists already`);
    const domain = found ?? new XrcDomain();
    if (name !== undefined) this.#named.set(name, domain);
    const handle = this.#options.nextHandle();
    this.#openings.set(handle, new Opening(domain));
    return handle;
  }

  /** ibv_close_xrcd(3): EBUSY while SRQs or queue pairs made by this opening are there. The domain goes with its last opening. */
  close(handle: number): void {
    const { domain, users } = this.#opening(handle);
    if (users > 0) {
      throw new RoceError('ERR_ROCE_BUSY', `${users} queues and queue pairs use the XRC domain`, {
        errno: 'EBUSY',
      });
    }
    this.#openings.delete(handle);
    for (const other of this.#openings.values()) if (other.domain === domain) return;
    for (const [name, named] of this.#named) if (named === domain) this.#named.delete(name);
  }

  /** EINVAL without one. */
  domain(handle: number): XrcDomain {
    return this.#opening(handle).domain;
  }

  #opening(handle: number): Opening {
    const opening = this.#openings.get(handle);
    if (!opening) throw invalid('xrcd', 'no such XRC domain');
    return opening;
  }

  // ------------------------------------------------- shared receive queues

  /** Makes an SRQ one of a domain. @returns its number (ibv_get_srq_num(3)) */
  enter(srq: SharedReceiveQueue, handle: number, cq: CompletionQueue): number {
    const opening = this.#opening(handle);
    const number = this.#randomNumber();
    const source = { number, srq, cq };
    this.#entries.set(srq.handle, { source, opening });
    this.#numbers.add(number);
    opening.domain.add(source);
    opening.use(1);
    cq.use(1);
    return number;
  }

  /** Whether an SRQ is one of a domain. */
  has(handle: number): boolean {
    return this.#entries.has(handle);
  }

  /** An SRQ is destroyed: if it is one of a domain, no request finds it any more. */
  remove(handle: number): void {
    const entry = this.#entries.get(handle);
    if (!entry) return;
    const { source, opening } = entry;
    this.#entries.delete(handle);
    this.#numbers.delete(source.number);
    this.#recentNumbers.add(source.number);
    opening.domain.remove(source);
    opening.use(-1);
    source.cq.use(-1);
  }

  /** 24 random bits that no SRQ has or had lately. */
  #randomNumber(): number {
    for (;;) {
      const number = this.#options.random() & LAST_NUMBER;
      if (number !== 0 && !this.#numbers.has(number) && !this.#recentNumbers.has(number)) return number;
    }
  }

  // ------------------------------------------------------- target queue pairs

  /** A target queue pair is created in the domain, or opened once more. @returns the handle of this opening */
  share(qpn: number, xrcd: number): number {
    const opening = this.#opening(xrcd);
    opening.use(1);
    const handle = this.#options.nextHandle();
    this.#shares.set(handle, { qpn, opening });
    return handle;
  }

  /** EINVAL where the queue pair is no target of that domain. */
  checkTarget(qpn: number, xrcd: number): void {
    const { domain } = this.#opening(xrcd);
    for (const share of this.#shares.values())
      if (share.qpn === qpn && share.opening.domain === domain) return;
    throw invalid('qpNum', `${qpn} is no XRC target queue pair of this domain`);
  }

  /** An opening of a target queue pair is closed. @returns its QPN where that was the last; it is destroyed then */
  unshare(handle: number): number | undefined {
    const share = this.#shares.get(handle);
    if (!share) throw invalid('qp', 'no such opening of a target queue pair');
    this.#shares.delete(handle);
    share.opening.use(-1);
    for (const { qpn } of this.#shares.values()) if (qpn === share.qpn) return undefined;
    return share.qpn;
  }
}
