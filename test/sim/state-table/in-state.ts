/** Queue pairs brought to a state by the shortest way, each step with the attributes that it requires and no more. */
import type { Experimental, QpAttr, QpState, QpType } from '@node-roce/transport';
import type { FrameHost } from '../../../packages/transport/src/index.ts';
import { Side } from '../../../packages/transport/testing/pair.ts';
import { cellOf, goodValues, MEMBERS } from './reference.ts';

const WAYS: Record<QpState, readonly QpState[]> = {
  RESET: [],
  INIT: ['INIT'],
  RTR: ['INIT', 'RTR'],
  RTS: ['INIT', 'RTR', 'RTS'],
  SQD: ['INIT', 'RTR', 'RTS', 'SQD'],
  SQE: ['INIT', 'RTR', 'RTS'],
  ERR: ['INIT', 'ERR'],
};

/** An interface without a frame, for RAW_PACKET. */
const NO_FRAMES: FrameHost = {
  batch: { slab: new Uint8Array(1), slots: new Uint32Array(2) },
  open: () => ({
    setFilter: () => {},
    checkFilter: () => {},
    send: ({ count }) => count,
    receive: () => 0,
    wantRead: () => {},
    stats: () => ({ received: 0, dropped: 0 }),
    close: () => {},
  }),
};

/** An adapter on which one queue pair after the other is made and let go. */
export class Bench {
  readonly side: Side;
  readonly #domain: number;

  /** @param experimental in addition to XRC */
  constructor(...experimental: Experimental[]) {
    this.side = new Side(1, 1, { frames: NO_FRAMES, experimental: ['xrc', ...experimental] });
    this.#domain = this.side.adapter.openXrcd({});
    this.side.adapter.destroyQp(this.side.qp.qpn);
  }

  /** Lends a queue pair in that state, and destroys it afterwards. @param atRtr given in the step to RTR, in addition to what it requires */
  with<T>(type: QpType, state: QpState, use: (qp: Trial) => T, atRtr: readonly (keyof QpAttr)[] = []): T {
    const { side } = this;
    const target = type === 'XRC_TGT' ? side.createXrcTarget(this.#domain) : undefined;
    if (!target) side.createQp({}, { type });
    const qp = new Trial(side);
    try {
      let from: QpState = 'RESET';
      for (const to of WAYS[state]) {
        const names = cellOf(type, from, to)!.required.flatMap((bit) => MEMBERS[bit]);
        qp.modify(pick(to === 'RTR' ? [...names, ...atRtr] : names, from, to));
        from = to;
      }
      if (state === 'SQE') qp.failSend();
      return use(qp);
    } finally {
      if (target) side.adapter.closeXrcTarget(target.handle);
      else side.adapter.destroyQp(qp.qpn);
    }
  }
}

/** The attributes of these names with good values, and the state to go to, if any. */
export function pick(
  names: readonly (keyof QpAttr)[],
  from: QpState,
  to: QpState | undefined,
  second = false,
): QpAttr {
  const values = goodValues(from, second);
  const attr = Object.fromEntries(names.map((name) => [name, values[name]]));
  return to === undefined ? attr : { ...attr, qpState: to };
}

/** The queue pair that is on the bench. */
export class Trial {
  readonly qpn: number;
  readonly #side: Side;

  constructor(side: Side) {
    this.#side = side;
    this.qpn = side.qp.qpn;
  }

  modify(attr: QpAttr): void {
    this.#side.adapter.modifyQp(this.qpn, attr);
  }

  query() {
    return this.#side.adapter.queryQp(this.qpn);
  }

  get state(): QpState {
    return this.query().attr.qpState!;
  }

  /** A send with a key that opens nothing: UC and UD go to SQE by it, RC to ERR (IBTA vol 1 §10.3.1). */
  failSend(): void {
    const { adapter, pd, tx } = this.#side;
    const bad = { handle: 0, lkey: 0, rkey: 0, addr: 0n, iova: 0n };
    const ah = adapter.createAh(pd, goodValues('RTS').ahAttr as NonNullable<QpAttr['ahAttr']>);
    const datagram = { ah, qpn: 9, qkey: 1 };
    const isRaw = this.query().init.type === 'RAW_PACKET';
    this.#side.post({ opcode: 'SEND', sge: [{ mr: bad, length: 1 }], ...(isRaw ? {} : { datagram }) });
    tx.clear();
    adapter.transmit(tx);
    adapter.sent(tx);
    this.#side.poll();
    adapter.destroyAh(ah);
  }
}
