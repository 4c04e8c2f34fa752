/** Both ends of a connection, as this side knows them: the PSN and GID that it offers, and the peer that it was given. */
import type { Own, QpAttr, QpState, QpType } from '@node-roce/transport';
import { gidToIpText } from '@node-roce/wire';
import {
  type ConnectionData,
  type ConnectOptions,
  connectAttributes,
  defaultGid,
  gidAt,
} from './connection.ts';
import type { Engine, EngineFacts } from './engine/engine.ts';
import { checkConnectionData, checkConnectOptions } from './option-types.ts';

/** A queue pair that has a peer. */
export interface Connectable {
  readonly qpNum: number;
  readonly type: QpType;
  readonly state: QpState;
  modify(attr: QpAttr): Promise<unknown>;
}

/** Draws the PSN anew with each RESET: what is still under way of the last connection is not taken for the next one's. */
export class Ends {
  readonly initialPsn: number;
  /** The index of the GID that was offered last; undefined if none was. */
  readonly gidIndex: number | undefined;
  readonly #random: () => number;
  #peerQpn = 0;
  #peerAddress: string | undefined;

  constructor(random: () => number) {
    this.#random = random;
    this.initialPsn = random() & 0xff_ffff;
  }

  /** The other side, as messages name it. */
  get peer(): string | undefined {
    return this.#peerAddress && `QP ${this.#peerQpn} at ${this.#peerAddress}`;
  }

  /** The data that the peer needs; this side has that GID from now on. */
  offer(
    { gids, activeMtu }: EngineFacts,
    qpNum: number,
    gidIndex: number = defaultGid(gids),
  ): ConnectionData {
    const { address } = gidAt(gids, gidIndex);
    (this as Own<Ends>).gidIndex = gidIndex;
    return { qpNum, psn: this.initialPsn, gid: address, mtu: activeMtu };
  }

  /** Takes the queue pair from RESET (or INIT) to RTS, connected to that peer. Rejects as its `modify`. */
  async connect(
    qp: Connectable,
    engine: Engine,
    remote: ConnectionData,
    options: ConnectOptions,
  ): Promise<void> {
    checkConnectionData(remote);
    checkConnectOptions(options);
    const { init, rtr, rts } = connectAttributes(this, remote, options, engine.facts, qp.type);
    if (qp.state === 'RESET') await qp.modify(init);
    await qp.modify(rtr);
    if (remote.selective === true) await engine.call('acknowledgeAhead', qp.qpNum);
    await qp.modify(rts);
  }

  /** Attributes were changed: those of a peer name it from now on. */
  modified({ destQpNum, ahAttr, qpState }: QpAttr): void {
    if (destQpNum !== undefined && ahAttr?.grh !== undefined) {
      this.#peerQpn = destQpNum;
      this.#peerAddress = gidToIpText(ahAttr.grh.dgid);
    }
    if (qpState !== 'RESET') return;
    this.#peerAddress = undefined;
    (this as Own<Ends>).initialPsn = this.#random() & 0xff_ffff;
  }
}
